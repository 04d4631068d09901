"""test_last_event — `delivered` is said of mail that a next hop took, and of no other"""

from __future__ import annotations

from typing import Final
from uuid import UUID

import pytest

from httpd.routes.emails import last_event
from operate.shapes.message import Message, MessageRecipient
from shared.config.condition.fields import STATES
from shared.mail.results import RESULTS

WORDS: Final = {
    **dict.fromkeys(("active", "sending", "defer", "hold", "of another version"), "queued"),
    **dict.fromkeys(("bounce", "rejected", "failed", "expired", "lock_expired", "bounced"), "bounced"),
    **dict.fromkeys(("delete", "deleted"), "canceled"),
    "scheduled": "scheduled",
    "success": "delivered",
}


def message(*states: str) -> Message:
    """A message with one recipient in each of these states."""
    recipients = [MessageRecipient.model_construct(state=state) for state in states]
    return Message.model_construct(id=UUID(int=0), recipients=recipients)


def test_every_state_and_every_way_to_finish_has_its_word() -> None:
    assert {*map(str.lower, STATES), *RESULTS} < WORDS.keys()


@pytest.mark.parametrize(("state", "word"), WORDS.items())
def test_one_recipient_says_what_became_of_the_message(state: str, word: str) -> None:
    assert last_event(message(state)) == word


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (("success", "lock_expired"), "bounced"),
        (("success", "defer"), "queued"),
        (("success", "deleted"), "canceled"),
        (("success", "success"), "delivered"),
    ],
)
def test_a_message_is_delivered_if_every_recipient_is(states: tuple[str, ...], word: str) -> None:
    assert last_event(message(*states)) == word
