"""states — the statuses of a queue row and the legal moves between them

Owns: both, as values.
Guarantees: the same list is in sql/README.md and in the table status_transitions;
    tests/integration/schema/test_states.py compares all three.
See: sql/README.md, "States".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Status(StrEnum):
    """The values of the column queue.status (names from Halon's queue)."""

    HOLD = "HOLD"
    DELIVER = "DELIVER"
    DELETE = "DELETE"
    BOUNCE = "BOUNCE"


#: (previous, next); previous None is a new row.
TRANSITIONS: Final[frozenset[tuple[Status | None, Status]]] = frozenset(
    {
        (None, Status.DELIVER),
        (None, Status.HOLD),
        (Status.DELIVER, Status.HOLD),
        (Status.HOLD, Status.DELIVER),
        (Status.DELIVER, Status.DELETE),
        (Status.HOLD, Status.DELETE),
        (Status.DELIVER, Status.BOUNCE),
        (Status.HOLD, Status.BOUNCE),
    }
)


def may_move(previous: Status | None, following: Status) -> bool:
    """Whether a row may go from `previous` (None: it is new) to `following`."""
    return (previous, following) in TRANSITIONS
