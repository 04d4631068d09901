"""test_compose — the client's messages are composed as they were said, the same octets each time

Owns: proofs about clients/python/pillarbox_client/message.py and compose.py.
"""

from __future__ import annotations

import email.policy
from datetime import UTC, datetime
from email import message_from_bytes
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pillarbox_client import Attachment, Message, Tag, Unsubscribe
from pillarbox_client.compose import compose
from pydantic import ValidationError

if TYPE_CHECKING:
    from email.message import EmailMessage

PLAIN: Final[dict[str, Any]] = {"sender": "shop@example.com", "to": "ann@example.net", "text": "Thanks.\n"}
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=200)


def read(message: Message) -> EmailMessage:
    """The composed message, parsed."""
    content = compose(message)
    assert content.isascii()
    assert b"\n" not in content.replace(b"\r\n", b"")
    return message_from_bytes(content, policy=email.policy.default)


def test_every_part_arrives_as_it_was_said() -> None:
    message = Message(
        sender="Müller & Söhne <shop@example.com>",
        to=["Ann <ann@example.net>", "bob@example.net"],
        cc=["carl@example.net"],
        bcc=["dora@example.net", "ann@example.net"],
        reply_to=["help@example.com"],
        subject="Ihre Bestellung: 5 €",
        text="Grüße\n",
        html='<p>Grüße <img src="cid:logo"></p>\n',
        headers={"X-Order": "4711"},
        attachments=[
            Attachment(filename="ä.pdf", content=b"%PDF"),
            Attachment(filename="logo.png", content=b"PNG", content_id="logo"),
        ],
        list_unsubscribe=Unsubscribe(url="https://example.com/u?id=1"),
        date=datetime(2026, 11, 25, 3, tzinfo=UTC),
        message_id="order-4711",
    )
    assert message.recipients == ["ann@example.net", "bob@example.net", "carl@example.net", "dora@example.net"]
    found = read(message)
    assert {name: found[name] for name in ("From", "To", "Cc", "Bcc", "Reply-To", "Subject", "X-Order")} == {
        "From": "Müller & Söhne <shop@example.com>",
        "To": "Ann <ann@example.net>, bob@example.net",
        "Cc": "carl@example.net",
        "Bcc": None,
        "Reply-To": "help@example.com",
        "Subject": "Ihre Bestellung: 5 €",
        "X-Order": "4711",
    }
    assert found["Date"].datetime == message.date
    assert found["Message-ID"] == "<order-4711@example.com>"
    assert found["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert [part.get_content_type() for part in found.walk()] == [
        *("multipart/mixed", "multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png"),
        "application/pdf",
    ]
    contents = [part.get_content() for part in found.walk() if not part.is_multipart()]
    assert contents == ["Grüße\r\n", '<p>Grüße <img src="cid:logo"></p>\r\n', b"PNG", b"%PDF"]
    assert [part.get_filename() for part in found.iter_attachments()] == ["ä.pdf"]


@given(subject=TEXT, text=TEXT, html=st.none() | TEXT, value=TEXT)
def test_any_text_is_composed_and_read_again_and_is_the_same_each_time(
    subject: str, text: str, html: str | None, value: str
) -> None:
    message = Message(**PLAIN | {"subject": subject, "text": text, "html": html, "headers": {"X-Value": value}})
    found = read(message)
    assert set(found.keys()) >= {"From", "To", "Subject", "Date", "Message-ID", "X-Value", "MIME-Version"}
    assert found.get("Bcc") is None
    body = found.get_body(("plain",))
    assert body is not None
    assert body.get_content().rstrip("\r\n") == text
    assert compose(message) == compose(
        Message(**message.model_dump() | {"date": message.date, "message_id": message.message_id})
    )


def test_a_raw_message_stays_as_it_is() -> None:
    raw = b"From: x@example.com\r\n\r\n\xff"
    assert compose(Message(sender="a@example.com", to=["b@example.com"], raw=raw)) == raw


def test_the_schema_has_the_names_of_the_api() -> None:
    message = Message.model_validate(
        {"from": "shop@example.com", "to": "ann@example.net", "text": "x", "tags": [{"name": "t"}]}
    )
    dumped = message.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    assert dumped == {"from": "shop@example.com", "to": ["ann@example.net"], "text": "x", "tags": [{"name": "t"}]}
    assert message.own_metadata == {"t": ""}


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"subject": "a\r\nBcc: x@example.com"}, "subject"),
        ({"to": "ann"}, "to"),
        ({"to": []}, "to"),
        ({"sender": "Shop\n<shop@example.com>"}, "sender"),
        ({"to": "=?utf-8?q?ceo=40b.example=2C_=C3=BC?= <ann@example.net>"}, "encoded word"),
        ({"headers": {"Bcc": "x@example.com"}}, "headers"),
        ({"headers": {"X-A": "a\nb"}}, "headers"),
        ({"headers": {"X A": "a"}}, "headers"),
        ({"text": None}, "text, html and raw are all missing"),
        ({"raw": b"x"}, "raw and text exclude each other"),
        ({"metadata": {"_partid": "1"}}, "metadata"),
        ({"tags": [Tag(name="a")], "metadata": {"a": 1}}, "'a' twice"),
        ({"priority": 10}, "priority"),
        ({"subjekt": "x"}, "subjekt"),
        ({"scheduled_at": datetime(2030, 1, 1)}, "scheduled_at"),  # noqa: DTZ001 - it has no time zone
    ],
)
def test_what_is_wrong_is_refused_by_its_name(wrong: dict[str, Any], where: str) -> None:
    with pytest.raises(ValidationError, match=where):
        Message(**PLAIN | wrong)
