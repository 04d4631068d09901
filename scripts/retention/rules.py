"""rules — the held mail that is older than its retention

Owns: turning `quarantines[].retention`, `retention.default` and a command line into conditions.
Guarantees: pure. A recipient matches one rule at most. The time on hold counts, not the time since arrival: mail that
    an operator holds today is not deleted today, however old it is.
See: docs/how-to/review/keep-and-delete.md; docs/reference/condition.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.config.condition.read import read
from shared.config.condition.values import quoted
from shared.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from shared.config.condition.tree import Node


@dataclass(frozen=True, slots=True)
class Rule:
    """One quarantine, or everything that has no rule of its own (None), and how long it is kept (None: for ever)."""

    quarantine: str | None
    keep: timedelta | None
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people."""
        return "(others)" if self.quarantine is None else self.quarantine

    @property
    def condition(self) -> Node:
        """Which recipients have been held for long enough, as `pillarbox queue list` takes it, too."""
        words = ["state=HOLD"]
        if self.quarantine is not None:
            words.append(f"quarantine={quoted(self.quarantine)}")
        elif self.others:
            words.append(f"quarantine!={','.join(map(quoted, self.others))}")
        if self.keep is not None:
            # `held` is never longer than `age`, which has an index.
            words += [f"held>{format_duration(self.keep)}", f"age>{format_duration(self.keep)}"]
        return read(" ".join(words))


def rules(kept: Mapping[str, timedelta | None], default: timedelta | None) -> list[Rule]:
    """A rule for each quarantine that says how long, and one for all others, with the default."""
    own = {name: keep for name, keep in kept.items() if keep is not None}
    return [*(Rule(name, keep) for name, keep in sorted(own.items())), Rule(None, default, tuple(sorted(own)))]
