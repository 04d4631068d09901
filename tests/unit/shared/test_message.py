"""test_message — messages, recipients and addresses are frozen values, and ids are in order of time

Owns: examples for shared/mail/message.py.
See: RFC 9562 section 5.7 (UUIDv7).
"""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError
from uuid import RFC_4122, UUID

import pytest

from shared.mail.message import Address, Recipient, Submission, new_message_id
from shared.mail.states import Status

SENDER = Address("sender", "sender.example")
RECIPIENT = Recipient(Address("r", "example.com"), "1")


def submission(*recipients: Recipient) -> Submission:
    return Submission(new_message_id(), SENDER, recipients, b"", False, "192.0.2.1", "default", "client.example", None)


def test_an_id_is_a_uuid_of_version_7_with_the_time() -> None:
    before = time.time_ns() // 1_000_000
    made = new_message_id()
    after = time.time_ns() // 1_000_000
    assert type(made) is UUID  # psycopg sends nothing else as uuid
    assert (made.version, made.variant) == (7, RFC_4122)
    assert before <= made.int >> 80 <= after


def test_ids_are_unique_and_grow_with_time() -> None:
    ids = [new_message_id() for _ in range(10_000)]
    assert len(set(ids)) == len(ids)
    milliseconds = [made.int >> 80 for made in ids]
    assert milliseconds == sorted(milliseconds)


def test_an_address_is_written_as_it_was_read() -> None:
    assert str(Address('"a b"', "example.com")) == '"a b"@example.com'


def test_a_recipient_is_delivered_by_default() -> None:
    assert (RECIPIENT.status, RECIPIENT.transportid, RECIPIENT.metadata) == (Status.DELIVER, "default", {})


def test_each_recipient_has_its_own_metadata() -> None:
    assert Recipient(SENDER, "1").metadata is not Recipient(SENDER, "1").metadata


def test_a_message_with_a_held_recipient_is_held() -> None:
    held = Recipient(SENDER, "1", status=Status.HOLD)
    assert submission(RECIPIENT, held).held
    assert not submission(RECIPIENT, RECIPIENT).held
    assert not submission().held


@pytest.mark.parametrize(("value", "field"), [(SENDER, "domain"), (RECIPIENT, "partid"), (submission(), "content")])
def test_values_do_not_change(value: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, field, "other")
