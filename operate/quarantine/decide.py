"""decide — what releasing and deleting held mail change

Guarantees: to other addresses mail goes as a copy, and the held recipient is deleted in the same transaction.
Raises: Refused.
See: operate/queue/act.py, which does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.errors import Refused
from operate.queue.act import Change
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.mail.message import Address

MOST_ADDRESSES: Final = 20


def delete() -> Change:
    """Delete held mail; no sender is notified."""
    return Change("delete", "queue_end", ("HOLD",), "deleted", values={"status": "DELETE"})


def release(to: Sequence[Address] = ()) -> Change:
    """Deliver held mail: to its recipient, or to these addresses instead."""
    if not to:
        return Change("release", "queue_release", ("HOLD",), "released")
    unique = list(dict.fromkeys(to))
    if len(unique) > MOST_ADDRESSES:
        raise Refused(f"quarantine release: {how_many(len(unique), 'address')}; allowed: up to {MOST_ADDRESSES}")
    values = {"localparts": [each.localpart for each in unique], "domains": [each.domain for each in unique]}
    argument = {"to": [str(each) for each in unique]}
    return Change("redirect", "quarantine_redirect", ("HOLD",), "redirected", values=values, argument=argument)
