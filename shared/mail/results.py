"""results — the results with which a recipient can finish

Owns: the values of archive.result, their meanings, and which of them make a dead letter.
Guarantees: the same values are in the archive's constraint, in the function archive_is_dead, in sql/README.md and in
    docs/reference/results.md; tests/integration/result/test_results_agree.py compares all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Finish:
    """One way to finish: whether it is a dead letter, announced on the channel dead_message, and what happened."""

    dead: bool
    meaning: str


#: The values of archive.result.
RESULTS: Final[dict[str, Finish]] = {
    "success": Finish(dead=False, meaning="The next hop took it."),
    "rejected": Finish(dead=True, meaning="We refused it ourselves before any peer was asked for this recipient."),
    "failed": Finish(dead=True, meaning="A peer refused it for good."),
    "expired": Finish(dead=True, meaning="Its tries or its age were used up."),
    "lock_expired": Finish(
        dead=True, meaning="It was held because its claims kept ending without a result, then deleted or bounced."
    ),
    "deleted": Finish(dead=False, meaning="An operator, a reviewer, retention or its own application deleted it."),
    "bounced": Finish(dead=False, meaning="An operator or a reviewer bounced it."),
}

#: Those that are dead letters.
DEAD: Final = tuple(result for result, finish in RESULTS.items() if finish.dead)
