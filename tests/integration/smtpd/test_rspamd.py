"""test_rspamd — the real rspamd decides about real mail

Owns: proofs that policy.contentcheck works with Debian's rspamd, from the socket to the rows.
See: tests/integration/smtpd/test_content_check.py for answers that no honest rspamd gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from shared.config.smtpd.policy_check import ContentCheck
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.engine import CheckResult
from smtpd.policy.session import Envelope
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.rspamd import GTUBE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard


def mail(subject: str = "hello", body: bytes = b"body") -> bytes:
    return (
        b"From: a@sender.example\r\nTo: b@example.com\r\nMessage-ID: <1@sender.example>\r\n"
        b"Date: Sat, 21 Nov 2026 10:00:00 +0000\r\nSubject: " + subject.encode() + b"\r\n\r\n" + body + b"\r\n"
    )


def checking(url: str, *rules: dict[str, Any], **settings: Any) -> dict[str, Any]:
    return {"contentcheck": {"url": url, **settings}, "rules": [{"phase": "eod", **rule} for rule in rules]}


@pytest.mark.parametrize(
    ("subject", "body", "reply"),
    [
        ("hello", b"body", "250 2.0.0"),
        ("hello", GTUBE, "554 5.7.1 Message refused for its content"),
        ("add-header", b"body", "250 2.0.0"),
        ("soft-reject", b"body", "451 4.7.1"),
        ("greylist", b"body", "451 4.7.1"),
        ("rewrite", b"body", "250 2.0.0"),
    ],
)
async def test_each_rspamd_verdict_has_its_reply(
    subject: str, body: bytes, reply: str, factory: Factory, rspamd: str, heard: Heard
) -> None:
    async with serving(factory.uri, policy=checking(rspamd)) as port, Dialogue(port) as client:
        assert (await client.submit(mail(subject, body), b"<b@example.com>", b"<c@example.com>")).startswith(reply)
    [event] = heard.all("content.checked")
    rows = factory.queue()
    assert len(rows) == (2 if reply.startswith("250") else 0)
    if not rows:
        return
    [stored] = factory.bodies().values()
    content = bytes(stored.content)
    marks = content.count(b"\r\nX-Spam: Yes\r\n")
    assert marks == (1 if subject in {"add-header", "rewrite"} else 0)
    queueid = str(rows[0].messages__id)
    assert f"X-Seen: 127.0.0.1 client.example - a@sender.example 2 {queueid}\r\n".encode() in content
    assert content.endswith(mail(subject, body))  # the submitted content is stored unaltered, subject included
    assert event["action"] == {"add-header": "add header", "rewrite": "rewrite subject"}.get(subject, "no action")


async def test_a_thousand_recipients_with_long_names_are_checked(rspamd: str, heard: Heard) -> None:
    recipients = tuple(f"{number:04}-{'x' * 50}@{'y' * 60}.{'z' * 60}.example" for number in range(1000))
    checker = ContentChecker(ContentCheck.model_validate({"url": rspamd}))
    envelope = Envelope("192.0.2.7", None, "a", None, "a@sender.example", recipients)
    assert isinstance(await checker.check(mail(), envelope), CheckResult)
    await checker.close()
    assert heard.all("content.unavailable") == []


async def test_a_reject_can_be_configured_to_hold(factory: Factory, rspamd: str) -> None:
    policy = checking(rspamd, hold="spam", actions={"reject": "hold"})
    async with serving(factory.uri, policy=policy) as port, Dialogue(port) as client:
        assert (await client.submit(mail(body=GTUBE))).startswith("250")
    [row] = factory.queue()
    assert (row.status, row.metadata["_quarantineid"]) == ("HOLD", "spam")
    assert row.metadata["_holdreason"] == "rspamd says reject"


async def test_rules_read_score_and_symbols(factory: Factory, rspamd: str) -> None:
    policy = checking(
        rspamd,
        {"id": "trusted", "if": {"header": {"Subject": ["trusted"]}}, "then": {"accept": True}},
        {"id": "tell", "if": {"symbols": ["SUBJECT_SAYS"]}, "then": {"metadata": {"score": "{score}"}}},
        {"id": "doubt", "if": {"score": ">=6"}, "then": {"hold": "doubt", "accept": True}},
    )
    async with serving(factory.uri, policy=policy) as port, Dialogue(port) as client:
        for subject in ("hello", "add-header"):
            assert (await client.submit(mail(subject))).startswith("250")
        assert (await client.submit(mail("trusted", GTUBE))).startswith("250")
    plain, doubtful, trusted = factory.queue()
    assert (plain.status, plain.metadata["score"]) == ("DELIVER", "1.00")
    assert (doubtful.status, doubtful.metadata["score"], doubtful.metadata["_policyrule"]) == (
        "HOLD",
        "7.00",
        "tell,doubt",
    )
    assert trusted.metadata["_policyrule"] == "trusted"


@pytest.mark.parametrize(
    ("whendown", "reply", "status"),
    [("accept", "250 2.0.0", "DELIVER"), ("hold", "250 2.0.0", "HOLD"), ("defer", "451 4.3.0", None)],
)
async def test_whendown_applies_while_rspamd_is_down(
    whendown: str, reply: str, status: str | None, factory: Factory, heard: Heard
) -> None:
    policy = checking(f"http://127.0.0.1:{free_port()}", whendown=whendown)
    async with serving(factory.uri, policy=policy) as port, Dialogue(port) as client:
        assert (await client.submit(mail())).startswith(reply)
    assert [row.status for row in factory.queue()] == ([status] if status else [])
    assert len(heard.all("content.unavailable")) == 1
