"""commit_delay — how long a worker gathers work before it pays for a COMMIT

Owns: the one decision on gathering, for claims and for results alike.
Guarantees: pure. A worker with little under way does not wait, so a lone message is sent as soon as possible; attempts
    at hosts that have not answered lately do not count. Never longer than 10 ms, which is the time that a crash of the
    worker may add to the window of duplicates.
See: docs/explanation/benchmarks-flow.md, "Where the time goes"; commit_delay and commit_siblings of PostgreSQL, which
    do the same for a flush.
"""

from __future__ import annotations

from typing import Final

_SECONDS: Final = 0.010
_UNDER_WAY: Final = 4  # recipients, for which company is likely to come
_ENOUGH: Final = 50  # of them are worth a COMMIT of their own


def seconds(under_way: int, ready: int = 0) -> float:
    """How long to wait, with so many recipients under way that may join the `ready` ones; 0 to go ahead."""
    return _SECONDS if under_way >= _UNDER_WAY and ready < _ENOUGH else 0.0
