"""batch — how many tokens the next batch takes, and when it is due

Guarantees: pure; takes the time as a value. A batch is never larger than `most`; a token that was seen waiting is
    collected at most `wait` later.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Pace:
    """The size grows from `least` to `most` while batches are full, and falls back when one is not."""

    least: int
    most: int
    wait: float
    size: int = 0
    since: float | None = None  # when tokens were first seen that wait for this batch to become full

    def __post_init__(self) -> None:
        self.size = self.least

    def taken(self, count: int) -> bool:
        """Note a batch of so many; whether the next one is due at once, because this one was full."""
        self.since = None
        full = count >= self.size
        self.size = min(self.most, 2 * self.size) if full else self.least
        return full

    def due_in(self, waiting: int, now: float) -> float | None:
        """Seconds until the next batch is due, given how many tokens wait (counted up to `size`); None: none wait."""
        if not waiting:
            self.since = None
            return None
        if waiting >= self.size:
            return 0.0
        if self.since is None:
            self.since = now
        return max(0.0, self.since + self.wait - now)
