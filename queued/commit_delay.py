"""commit_delay — how long a worker gathers work before it pays for a COMMIT

Owns: the one decision on gathering, for claims and for results.
Guarantees: pure. A worker with little under way claims at once, so a lone message is sent as soon as possible. A result
    waits for one other already: its message is delivered, so the wait delays no mail. Attempts at hosts that have not
    answered lately do not count. Never longer than 10 ms, which is the time that a crash of the worker may add to the
    window of duplicates.
See: docs/explanation/benchmarks-flow.md, "Where the time goes"; commit_delay and commit_siblings of PostgreSQL, which
    do the same for a flush.
"""

from __future__ import annotations

from typing import Final

_SECONDS: Final = 0.010
_COMPANY: Final = 4  # recipients under way, for which a claim is likely to find more than one
_ENOUGH: Final = 50  # results are worth a COMMIT of their own


def before_claim(under_way: int) -> float:
    """Seconds to wait before the next claim, with so many recipients under way; 0 to go ahead."""
    return _SECONDS if under_way >= _COMPANY else 0.0


def before_results(under_way: int, ready: int) -> float:
    """Seconds to wait before `ready` results are recorded, with so many recipients under way that may join them."""
    return _SECONDS if under_way > 0 and ready < _ENOUGH else 0.0
