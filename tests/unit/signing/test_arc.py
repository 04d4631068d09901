"""test_arc — which messages are sealed, the chain verdict in a seal, and chains that dkimpy verifies

See: RFC 8617 section 5.1; tests/integration/signing/test_arc_verified_elsewhere.py for a verifier that shares no
    code with ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dkim
import pytest

from queued.signing.arc import read_chain
from queued.values import Body
from shared.errors import ConfigError
from tests.fixtures.daemons.signing import MESSAGE, NOW, arc, claimed, key_files, records, rule, signer

if TYPE_CHECKING:
    from pathlib import Path

    from queued.signing.sign import Signer

RESULTS = (
    b"Authentication-Results: mx.relay.example;\r\n\tspf=pass smtp.mailfrom=ann@origin.example;\r\n"
    b" dkim=pass (2048-bit; secure)\r\n"
)


async def sealed(by: Signer, content: bytes) -> bytes:
    """The message as it would leave; whether it is sealed agrees with `would_seal`."""
    signature = await by.sign(Body(content, smtputf8=False), claimed())
    assert signature.fault is None
    would, why = by.would_seal(content, NOW)
    assert signature.fields.startswith(b"ARC-Seal") == (would is not None) == (why is None)
    return signature.fields + content


def verdict(message: bytes) -> tuple[bytes | None, int]:
    """The verdict of dkimpy on the chain, and the number of its sets."""
    status, sets, _ = dkim.ARC(message).verify(records)
    return status, len(sets)


def results(arc_result: str, server: str = "mx.relay.example") -> bytes:
    return f"Authentication-Results: {server}; arc={arc_result} (i=1)\r\n".encode()


@pytest.fixture
def by(tmp_path: Path) -> Signer:
    return signer(arc=arc(tmp_path))


async def test_a_forwarded_message_is_sealed_and_its_chain_verifies(by: Signer) -> None:
    message = await sealed(by, RESULTS + MESSAGE)
    assert message.startswith(b"ARC-Seal: i=1; ")
    assert b"\r\nARC-Authentication-Results: i=1; mx.relay.example;\r\n\tspf=pass smtp.mailfrom=" in message
    assert b"cv=none" in message
    assert verdict(message) == (b"pass", 1)
    assert max(map(len, message.partition(b"\r\n\r\n")[0].split(b"\r\n"))) <= 78


async def test_a_message_without_our_authentication_results_is_not_sealed(by: Signer) -> None:
    for field in (b"", results("none", "mx.other.example"), b"Authentication-Results: nonsense\r\n"):
        assert await sealed(by, field + MESSAGE) == field + MESSAGE


@pytest.mark.parametrize("added", [b"Subject: other\r\n", b"To: eve@evil.example\r\n"])
async def test_a_change_after_sealing_breaks_the_chain(by: Signer, added: bytes) -> None:
    message = await sealed(by, RESULTS + MESSAGE)
    assert verdict(b"X-Seen: yes\r\n" + message)[0] == b"pass"
    assert verdict(added + message)[0] == b"fail"
    assert verdict(message + b"buy now\r\n")[0] == b"fail"


async def test_a_second_hop_adds_a_second_set(by: Signer) -> None:
    once = await sealed(by, RESULTS + MESSAGE)
    twice = await sealed(by, results("pass") + once)
    assert twice.startswith(b"ARC-Seal: i=2; ")
    assert b"cv=pass" in twice.partition(b"\r\nARC-M")[0]
    assert verdict(twice) == (b"pass", 2)
    thrice = await sealed(by, results("pass") + twice.replace(results("pass"), b""))
    assert verdict(thrice) == (b"pass", 3)


async def test_a_failed_chain_is_sealed_with_cv_fail_and_never_again(by: Signer) -> None:
    once = await sealed(by, RESULTS + MESSAGE)
    closed = await sealed(by, results("fail") + once)
    assert b"cv=fail" in closed.partition(b"\r\nARC-M")[0]
    status, sets, _ = dkim.ARC(closed).verify(records)
    assert status is None
    assert (sets[0]["cv"], sets[0]["ams-valid"]) == (b"fail", True)
    again = results("pass") + closed
    assert await sealed(by, again) == again


async def test_a_chain_without_a_verdict_is_not_sealed(by: Signer) -> None:
    once = await sealed(by, RESULTS + MESSAGE)
    for field in (b"Authentication-Results: mx.relay.example; spf=pass\r\n", results("policy")):
        message = field + once.replace(RESULTS, b"")
        assert await sealed(by, message) == message


async def test_a_comment_does_not_set_the_chain_verdict(by: Signer) -> None:
    once = await sealed(by, RESULTS + MESSAGE)
    field = b'Authentication-Results: mx.relay.example; arc=fail reason="; arc=pass" (; arc=pass)\r\n'
    message = await sealed(by, field + once)
    assert b"cv=fail" in message.partition(b"\r\nARC-M")[0]


async def test_the_seal_covers_our_own_signature(tmp_path: Path) -> None:
    by = signer(rule(key_files(tmp_path, "rsa")), arc=arc(tmp_path))
    message = await sealed(by, RESULTS + MESSAGE)
    assert verdict(message)[0] == b"pass"
    header = message.partition(b"\r\n\r\n")[0].lower()
    assert header.index(b"arc-authentication-results") < header.index(b"\r\ndkim-signature:")
    assert dkim.DKIM(message).verify(0, records)
    assert b"dkim-signature" in dkim.ARC(message).headers[1][1].replace(b"\r\n ", b"")


@pytest.mark.parametrize(
    "field",
    [
        b"ARC-Seal: i=1; cv=none\r\n",
        b"ARC-Seal: i=0; cv=none\r\nARC-Message-Signature: i=0;\r\nARC-Authentication-Results: i=0; x\r\n",
        b"ARC-Seal: cv=none\r\n",
        b"ARC-Seal: i=1; cv=none\r\n" * 2 + b"ARC-Message-Signature: i=1;\r\nARC-Authentication-Results: i=1; x\r\n",
    ],
)
async def test_a_malformed_chain_is_not_sealed(by: Signer, field: bytes) -> None:
    message = results("pass") + field + MESSAGE
    assert await sealed(by, message) == message


def test_a_chain_is_read_in_any_order_of_fields() -> None:
    aar, ams, seal = (
        (name, b" i=1; x\r\n") for name in (b"ARC-Authentication-Results", b"ARC-Message-Signature", b"arc-seal")
    )
    chain = read_chain([seal, (b"From", b" a@b\r\n"), ams, aar])
    assert chain is not None
    assert chain.sets == ((aar, ams, seal),)


async def test_without_a_current_key_mail_is_deferred(tmp_path: Path) -> None:
    by = signer(arc=arc(tmp_path, notafter=NOW.isoformat()))
    signature = await by.sign(Body(RESULTS + MESSAGE, smtputf8=False), claimed())
    assert signature.fault is not None
    assert "signing.arc has no key for this time" in signature.fault
    assert (await by.sign(Body(MESSAGE, smtputf8=False), claimed())).fault is None


@pytest.mark.parametrize(
    ("field", "would", "why"),
    [
        (RESULTS, "relay.example/rsa rsa-sha256, number 1, cv=none", None),
        (b"", None, "no Authentication-Results of mx.relay.example"),
        (results("pass") + b"ARC-Seal: i=1; cv=none\r\n", None, "the seals it has are incomplete"),
        (b" a line that goes on\r\n", None, "the header is malformed"),
    ],
    ids=["sealed", "unsaid", "incomplete", "malformed"],
)
def test_would_seal_reports_the_seal_or_the_reason(
    by: Signer, field: bytes, would: str | None, why: str | None
) -> None:
    assert by.would_seal(field + MESSAGE, NOW) == (would, why)


def test_without_a_sealer_or_a_valid_key_the_reason_is_given(tmp_path: Path) -> None:
    assert signer().would_seal(RESULTS + MESSAGE, NOW) == (None, None)
    late = signer(arc=arc(tmp_path, notafter=NOW.isoformat()))
    assert late.would_seal(RESULTS + MESSAGE, NOW) == (None, "signing.arc has no key for this time")


def test_only_rsa_keys_may_seal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"signing\.arc\.keys\[0\]\.file: holds a key of another kind; allowed: RSA"):
        signer(arc={**arc(tmp_path), "keys": key_files(tmp_path, "ed")})
