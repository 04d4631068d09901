"""own_login — what a queue row says of our own login, so that a worker that has just begun knows what stopped the mail

Owns: the words that are added to a later cause of mail that stays because our login was refused.
Guarantees: pure. The words that the claim looks for are these and those of queued/outcome/classify.py and
    queued/destinations/destination.py. They stay until a host has answered about the mail.
See: sql/queries/delivery/claim.sql, `login_refused`; queued/outcome/retry.py, OWN_TROUBLE; sql/README.md, "Claims".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from shared.mail.outcome import Outcome

_BEFORE: Final = " (our login was refused before)"


def noted(reason: str) -> str:
    """The reason for which mail waits, with a note that its login was refused."""
    return reason if " is left alone: " in reason else _noted(reason)


def note(outcome: Outcome) -> Outcome:
    """The same for an outcome that is not itself a refusal of our login."""
    return replace(outcome, text=_noted(outcome.text))


def _noted(text: str) -> str:
    return text if text.endswith(_BEFORE) else text + _BEFORE
