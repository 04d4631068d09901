"""test_notice_compose — a notification is well formed, with any text of peers and senders"""

from __future__ import annotations

import email
import email.policy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from queued.dsn.compose import compose, peer
from queued.dsn.report import Manner, Original, RecipientReport
from shared.config.queued.bounces import Bounces
from shared.mail.message import Address

if TYPE_CHECKING:
    from email.message import EmailMessage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ID = UUID("019a2b3c-0000-7000-8000-000000000001")
CONTENT = b"Subject: hello\r\n\r\nbody\r\n"
MANNER = Manner("mx.test", "Mail Delivery System", "MAILER-DAEMON@mx.test", 1000, {})


def original(content: bytes | None = CONTENT, *, smtputf8: bool = False, **changes: Any) -> Original:
    values = Original(ID, Address("app", "sender.example"), NOW, content, len(content or b""), smtputf8)
    return values._replace(**changes)


def of_recipient(text: str = "550 5.1.1 Nobody", **changes: Any) -> RecipientReport:
    values = RecipientReport(
        Address("joe", "example.com"), None, "mail.example.com[192.0.2.1]:25", 550, "5.1.1", text, NOW
    )
    return values._replace(**changes)


def parsed(content: bytes) -> EmailMessage:
    message = email.message_from_bytes(content, policy=email.policy.SMTP)
    assert all(part.defects == [] for part in message.walk())
    return message


@pytest.mark.parametrize(
    "text",
    [
        "550 evil\r\nSubject: forged\r\n\r\n--7.0/mx.test--",
        "550 \x00\x1b[31m \udcff  é\u2028x",
        "550 " + "x" * 100_000,
    ],
)
def test_the_text_of_a_peer_adds_no_line(text: str) -> None:
    made = compose("failed", original(), [of_recipient(text)], MANNER, 7, NOW)
    message = parsed(made.content)
    assert message["Subject"] == "Undelivered Mail Returned to Sender"
    assert [part.get_content_type() for part in message.iter_parts()] == [
        "text/plain",
        "message/delivery-status",
        "message/rfc822",
    ]
    assert max(map(len, made.content.split(b"\r\n"))) <= 998
    assert made.content.replace(b"\r\n", b"").count(b"\n") == made.content.replace(b"\r\n", b"").count(b"\r") == 0
    assert b"\x00" not in made.content
    assert not made.smtputf8


def test_the_boundary_does_not_occur_in_the_returned_message() -> None:
    first = compose("failed", original(), [of_recipient()], MANNER, 7, NOW).content
    nested = compose(
        "failed", original(first), [of_recipient()], Manner("mx.test", "x", "a@mx.test", 10_000, {}), 7, NOW
    )
    message = parsed(nested.content)
    [returned] = [part for part in message.iter_parts() if part.get_content_type() == "message/rfc822"]
    assert returned.get_payload(0).get_content_type() == "multipart/report"  # type: ignore[union-attr]


def test_international_mail_is_returned_as_a_global_report() -> None:
    content = "Subject: grüße\r\n\r\nbody\r\n".encode()
    whom = of_recipient(
        recipient=Address("jürgen", "example.com"), metadata={"_dsn": {"orcpt": ["utf-8", "jü@example.com"]}}
    )
    made = compose("failed", original(content, smtputf8=True), [whom], MANNER, 7, NOW)
    assert b"Content-Type: message/global-delivery-status" in made.content
    assert b"Content-Type: message/global\r\n" in made.content
    assert "Final-Recipient: utf-8; jürgen@example.com\r\n".encode() in made.content
    assert "Original-Recipient: utf-8; jü@example.com\r\n".encode() in made.content
    assert b"\r\nContent-Transfer-Encoding: 8bit\r\n" in made.content
    assert not made.smtputf8, "its own header is ASCII"
    to = original(content, smtputf8=True, sender=Address("jörg", "sender.example"))
    assert compose("failed", to, [whom], MANNER, 7, NOW).smtputf8


def test_invalid_content_is_returned_as_its_header_only() -> None:
    made = compose("failed", original(b"Subject: x\r\n\r\nbare\nline\x00\r\n"), [of_recipient()], MANNER, 7, NOW)
    assert b"text/rfc822-headers" in made.content
    assert b"bare" not in made.content
    stray = compose("failed", original(b"Subject: x\nBcc: y\r\n\r\n"), [of_recipient()], MANNER, 7, NOW)
    assert b"Subject: x?Bcc: y\r\n" in stray.content


def test_a_notification_is_sent_without_a_deleted_message() -> None:
    message = parsed(compose("failed", original(None), [of_recipient()], MANNER, 7, NOW).content)
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "message/delivery-status"]


def test_a_delay_notice_says_until_when_mail_is_retried() -> None:
    late = of_recipient("451 later", code=451, status="4.7.1", until=NOW + timedelta(days=5))
    made = compose("delayed", original(), [late], MANNER, 7, NOW)
    assert b"Will-Retry-Until: Thu, 26 Nov 2026 12:00:00 +0000\r\n" in made.content
    assert b"it is tried until Thu, 26 Nov 2026" in made.content
    assert b"text/rfc822-headers" in made.content


def test_a_configured_text_is_filled_in_once() -> None:
    texts = {"failed": "{hostname} to {sender}: {recipients}"}
    manner = Manner("mx.test", "x", "a@mx.test", 1000, texts)
    made = compose("failed", original(), [of_recipient("550 {sender}")], manner, 7, NOW)
    assert b"\r\nmx.test to app@sender.example: <joe@example.com>: host mail.example.com" in made.content
    assert b"said: 550 {sender}\r\n" in made.content


def test_an_unknown_placeholder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\{recipient\} means nothing here; allowed: \{hostname\}"):
        Bounces.model_validate({"texts": {"failed": "Dear {recipient}"}})


@pytest.mark.parametrize(
    ("remote", "name"),
    [
        ("mail.example.com[192.0.2.1]:25", "mail.example.com"),
        ("127.0.0.1:2525", "127.0.0.1"),
        ("[2001:db8::1]:25", "2001:db8::1"),
        (None, None),
        ("", None),
        ("what is this", None),
    ],
)
def test_the_host_is_named(remote: str | None, name: str | None) -> None:
    assert peer(remote) == name


def test_the_body_of_mail_that_requires_tls_is_not_returned() -> None:
    asked = {"_requiretls": True, "_dsn": {"ret": "FULL"}}
    made = compose("failed", original(), [of_recipient(metadata=asked)], MANNER, 7, NOW)
    assert [part.get_content_type() for part in parsed(made.content).iter_parts()][2] == "text/rfc822-headers"
    assert b"\r\nbody" not in made.content
