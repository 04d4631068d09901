"""test_sign — which rule signs with which key, what a signature protects, and mail that cannot be signed

See: RFC 6376 sections 5.4.2 and 8.15 (signed once more than present); RFC 8463 (two algorithms beside each other).
"""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from time import process_time
from typing import TYPE_CHECKING, Any

import dkim
import pytest

from queued.signing import sign
from queued.values import Body
from shared.errors import ConfigError
from tests.fixtures.daemons.signing import MESSAGE, NOW, claimed, key, key_files, records, rule, signer, verified

if TYPE_CHECKING:
    from pathlib import Path

    from queued.signing.sign import Signer
    from tests.fixtures.heard import Heard


async def signed(by: Signer, content: bytes = MESSAGE, **who: Any) -> bytes:
    """The message as it would leave."""
    body = Body(content, smtputf8=False)
    signature = await by.sign(body, claimed(**who))
    assert signature.fault is None
    assert body.content == content
    return signature.fields + content


def tags(message: bytes, name: str) -> list[str]:
    """The values of one tag in all signatures, in their order."""
    unfolded = message.partition(b"\r\n\r\n")[0].replace(b"\r\n ", b" ").decode()
    return [
        match[1]
        for line in unfolded.splitlines()
        if line.startswith("DKIM-Signature:") and (match := re.search(rf"[ ;]{name}=([^;]*)", line))
    ]


async def test_without_rules_mail_leaves_unsigned() -> None:
    assert await signed(signer()) == MESSAGE


async def test_rsa_and_ed25519_signatures_verify(tmp_path: Path) -> None:
    message = await signed(signer(rule(key_files(tmp_path, "ed", "rsa"))))
    assert tags(message, "a") == ["rsa-sha256", "ed25519-sha256"]
    assert tags(message, "d") == ["origin.example"] * 2
    assert tags(message, "c") == ["relaxed/relaxed"] * 2
    assert tags(message, "t") == [str(int(NOW.timestamp()))] * 2
    assert tags(message, "l") == []
    assert verified(message) == 2
    assert max(map(len, message.partition(b"\r\n\r\n")[0].split(b"\r\n"))) <= 78


@pytest.mark.parametrize("change", [b"From: Eve <e@evil.example>\r\n", b"Subject: x\r\n", b"Cc: x@evil.example\r\n"])
async def test_a_repeated_signed_field_breaks_the_signature(change: bytes, tmp_path: Path) -> None:
    message = await signed(signer(rule(key_files(tmp_path, "rsa"))))
    assert not dkim.DKIM(change + message).verify(0, records)


async def test_a_body_that_grows_breaks_the_signature(tmp_path: Path) -> None:
    message = await signed(signer(rule(key_files(tmp_path, "rsa"))))
    with pytest.raises(dkim.ValidationError, match="body hash mismatch"):
        dkim.DKIM(message + b"buy now\r\n").verify(0, records)


@pytest.mark.parametrize(
    ("patterns", "fits"),
    [
        (["origin.example"], True),
        (["Origin.Example"], True),
        (["*"], True),
        (["*.example"], True),
        (["*.origin.example"], False),
        (["other.example", "origin.example"], True),
        (["rigin.example"], False),
    ],
)
async def test_rules_are_chosen_by_the_sender_s_domain(patterns: list[str], fits: bool, tmp_path: Path) -> None:  # noqa: FBT001
    by = signer(rule(key_files(tmp_path, "ed"), senderdomain=patterns))
    assert verified(await signed(by)) == fits


async def test_a_rule_may_match_the_envelope_and_sign_for_another_domain(tmp_path: Path) -> None:
    keys = key_files(tmp_path, "ed")
    by = signer(rule(keys, senderdomain=["envelope.example"], source="envelope", domain="esp.example"))
    assert tags(await signed(by), "d") == ["esp.example"]
    assert await signed(by, sender="") == MESSAGE


async def test_every_matching_rule_signs_and_each_key_once(tmp_path: Path) -> None:
    keys = key_files(tmp_path, "ed", "rsa")
    third = rule(keys, id="esp", senderdomain=["*"], domain="esp.example")
    message = await signed(signer(rule(keys), rule(keys, id="again"), third))
    assert sorted(tags(message, "d")) == ["esp.example"] * 2 + ["origin.example"] * 2
    assert verified(message) == 4


async def test_keys_rotate_by_their_times(tmp_path: Path) -> None:
    [old] = key_files(tmp_path, "rsa-old", notafter="2026-11-21T13:00:00Z")
    [new] = key_files(tmp_path, "rsa-new", notbefore="2026-11-21T12:30:00Z")
    by = signer(rule([new, old]))
    seen = [tags(await signed(by, now=NOW + timedelta(minutes=m)), "s") for m in (0, 29, 30, 59, 60, 600)]
    assert seen == [["rsa-old"], ["rsa-old"], ["rsa-new"], ["rsa-new"], ["rsa-new"], ["rsa-new"]]


async def test_the_last_of_several_keys_without_times_signs(tmp_path: Path) -> None:
    assert tags(await signed(signer(rule(key_files(tmp_path, "rsa-old", "rsa-new")))), "s") == ["rsa-new"]


async def test_a_rule_without_a_current_key_defers_mail_or_leaves_it_unsigned(tmp_path: Path, heard: Heard) -> None:
    ended = rule(key_files(tmp_path, "ed", notafter="2026-11-21T12:00:00Z"))
    signature = await signer(ended).sign(Body(MESSAGE, smtputf8=False), claimed())
    assert signature.fault == "cannot be signed: signing rule origin has no key for this time"
    assert await signed(signer(ended, onerror="unsigned")) == MESSAGE
    assert [event["onerror"] for event in heard.all("sign.failed")] == ["defer", "unsigned"]


async def test_an_unexpected_error_in_signing_defers_mail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    def broken(*_: object) -> bytes:
        raise MemoryError("none left")

    by = signer(rule(key_files(tmp_path, "ed")))
    monkeypatch.setattr(sign, "body_digest", broken)
    signature = await by.sign(Body(MESSAGE, smtputf8=False), claimed())
    assert signature.fault == "cannot be signed: MemoryError('none left')"
    assert len(heard.all("sign.failed")) == 1


@pytest.mark.parametrize(
    "content",
    [
        b" folded: first\r\n" + MESSAGE,
        MESSAGE.replace(b"To:", b"no field at all\r\nTo:"),
        MESSAGE.replace(b"To:", b"To: x@y.example\r\n" * 300 + b"To:"),
    ],
)
async def test_a_message_that_cannot_be_signed_validly_leaves_unsigned(
    content: bytes, tmp_path: Path, heard: Heard
) -> None:
    assert await signed(signer(rule(key_files(tmp_path, "ed"))), content) == content
    assert [event["domain"] for event in heard.all("sign.skipped")] == ["origin.example"]


@pytest.mark.parametrize(
    "rest",
    [b" \r\n" * 300_000, b"x: y\r\n" * 300_000, b"Authentication-Results: " + b"(" * 3_000_000],
    ids=["lines", "fields", "octets"],
)
async def test_content_without_an_end_of_its_header_leaves_unsigned_at_once(
    rest: bytes, tmp_path: Path, heard: Heard
) -> None:
    content = MESSAGE.partition(b"\r\n\r\n")[0] + b"\r\n::\r\n" + rest
    by = signer(rule(key_files(tmp_path, "ed")))
    begun = process_time()
    assert await signed(by, content) == content
    assert process_time() - begun < 0.8
    # Beyond 2 MiB not even the author is looked for, and so no rule fits.
    skipped = ["origin.example"] if len(content) < 1 << 21 else []
    assert [event["domain"] for event in heard.all("sign.skipped")] == skipped


async def test_a_message_is_signed_once_for_all_its_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digested: list[int] = []

    def digest(content: bytes, _: int) -> bytes:
        digested.append(len(content))
        return b"d" * 32

    monkeypatch.setattr(sign, "body_digest", digest)
    by = signer(rule(key_files(tmp_path, "ed", "rsa")), thread=1)
    body = Body(MESSAGE, smtputf8=False)
    impatient = asyncio.create_task(by.sign(body, claimed()))
    signature = asyncio.gather(*(by.sign(body, claimed()) for _ in range(20)))
    await asyncio.sleep(0)
    impatient.cancel()  # as when its lease ends; the others still get theirs
    fields = {each.fields for each in await signature}
    assert len(fields) == 1
    assert digested == [len(MESSAGE)]


async def test_large_content_is_signed_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    large: list[int] = []

    async def to_thread(work: Any, *arguments: Any, **named: Any) -> Any:
        large.append(len(arguments[1]))
        return work(*arguments, **named)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    by = signer(rule(key_files(tmp_path, "ed")), thread=1000)
    for size in (999, 1000):
        content = MESSAGE.ljust(size, b"x")
        assert verified(await signed(by, content)) == 1
    assert large == [1000]


def test_a_key_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    keys = [*key_files(tmp_path, "ed"), {"selector": "gone", "file": str(tmp_path / "gone.pem")}]
    with pytest.raises(ConfigError) as signature:
        signer(rule(keys))
    expected = f"signing.rules[0].keys[1].file: {tmp_path}/gone.pem cannot be read: No such file or directory"
    assert str(signature.value) == expected


def test_a_dns_record_contains_no_private_key() -> None:
    assert "PRIVATE" not in key("rsa").record()


async def test_mail_with_a_foreign_from_leaves_unsigned(tmp_path: Path) -> None:
    """With `authentication.checkfrom: false` such mail is taken; smtpd marks it."""
    by = signer(rule(key_files(tmp_path, "ed")))
    assert verified(await signed(by)) == 1
    assert verified(await signed(by, metadata={"_foreignfrom": True})) == 0
