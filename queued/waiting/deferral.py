"""deferral — the answer of every gate that makes a delivery wait: how long, why, and which gate

Guarantees: a value. The caller parks the delivery: its claim counts as never made, and its try is not counted.
See: docs/explanation/admission.md, the table of gates.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from shared.mail.outcome import Scope

SOONEST, LATEST = 1.0, 600.0  # seconds that a delivery is parked for, unless what it waits for says a longer time


class Deferral(NamedTuple):
    """No try was made, for something must be waited for: the recipients are parked, and the try is not counted."""

    seconds: float
    reason: str
    every: float = 0.0  # seconds between one that may go and the next, where several wait for the same
    of: tuple[
        str, ...
    ] = ()  # the line to be placed in: a limit and what it counts; empty when the gate has placed them
    stopped: Scope | None = None  # the scope that stops all turns, however long one waits


class ParkedError(Exception):
    """An attempt met a closed gate before it had talked to a host; `until` says what it waits for."""

    def __init__(self, until: Deferral) -> None:
        super().__init__(until.reason)
        self.until = until


class ParkedLine:
    """The deliveries deferred by one gate, in the order in which they shall return."""

    def __init__(self) -> None:
        self._last = 0.0  # when the last one of them is expected to have its turn

    def seconds(self, now: float, gap: float) -> float:
        """How long one more is parked, where one has its turn every `gap` seconds; spread, and rather early."""
        self._last = min(max(self._last, now) + gap, now + LATEST)
        return max(SOONEST, (self._last - now) * random.uniform(0.7, 1.0))
