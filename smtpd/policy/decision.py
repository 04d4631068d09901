"""decision — the questions to a policy and its answers, as values

Guarantees: pure; every part of a policy may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from smtpd.policy.facts import CheckResult

if TYPE_CHECKING:
    from collections.abc import Mapping

type Verdict = Literal["accept", "reject", "defer"]


@dataclass(frozen=True, slots=True)
class Membership:
    """Whether `value` is in the list named `list`, which only a query can tell."""

    list: str
    value: str


@dataclass(frozen=True, slots=True)
class Rate:
    """Whether `key`, counted once more, is over `limit` in `seconds`; `name` is the rule's."""

    name: str
    key: tuple[str, ...]
    limit: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Check:
    """The content check's verdict on this message."""


type Question = Membership | Rate | Check


class Unanswered(Exception):
    """A rule asked for a fact that is not known yet; answer `question` and decide again."""

    def __init__(self, question: Question) -> None:
        super().__init__(question)
        self.question = question


@dataclass(slots=True)
class Known:
    """The answers found so far for one decision. `check` is a result, or why there is none."""

    yes: dict[Membership | Rate, bool] = field(default_factory=dict)
    check: CheckResult | Literal["down", "skipped"] | None = None

    def holds(self, question: Membership | Rate) -> bool:
        """The answer to a question; raises Unanswered."""
        answer = self.yes.get(question)
        if answer is None:
            raise Unanswered(question)
        return answer

    def checked(self) -> CheckResult | None:
        """The content check's result, None if there is none; raises Unanswered before it was asked."""
        if self.check is None:
            raise Unanswered(Check())
        return self.check if isinstance(self.check, CheckResult) else None


@dataclass(frozen=True, slots=True)
class Changes:
    """The values that rules have set so far; None is not set. `rules` are those that matched, in order."""

    hold: str | None = None  # quarantine id
    holdreason: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    partitionkey: str | None = None
    transport: str | None = None
    priority: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    rules: tuple[str, ...] = ()


UNCHANGED: Final = Changes()


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one rule: whether it matched, why (not), and its action."""

    rule: str
    matched: bool
    because: str
    did: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of one phase. `reply` is set unless accepted; `delay` is seconds to wait before replying."""

    verdict: Verdict = "accept"
    rule: str | None = None  # the rule that decided; None: no rule, hence accept
    reply: str | None = None
    changes: Changes = UNCHANGED
    delay: float = 0.0
    trail: tuple[Step, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the command goes on."""
        return self.verdict == "accept"
