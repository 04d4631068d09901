"""engine — what is to happen to a client and its mail, decided by rules

Owns: asking the rules of one phase in order, and what their answers add up to. Pure: no clock, no log, no network.
Guarantees: the first rule that decides (accept, reject, defer) ends its phase. Changes add up, and the first rule to
    set a thing has set it, over all phases of a session. Without a rule everything is accepted and nothing changed.
    An accept opens no relay: who may send is asked elsewhere (smtpd.policy.recipient.may_relay).
Raises: Unanswered, with the question whose answer `known` lacks.
See: docs/reference/policy.md; config/smtpd.yaml, `policy`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from smtpd.policy.facts import CheckResult, Facts, Phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from smtpd.policy.compile import CompiledPolicy, CompiledRule

__all__ = ["CheckResult", "Facts", "Phase"]

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
    """What the content check says of this message."""


type Question = Membership | Rate | Check


class Unanswered(Exception):
    """A rule asked what is not known yet; answer `question` and decide again."""

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
    """What rules have set so far; None is not set. `rules` are those that matched, in order."""

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
    """What one rule said: whether it matched, why (not), and what it did."""

    rule: str
    matched: bool
    because: str
    did: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of one phase. `reply` is set unless accepted; `delay` is seconds to wait before replying."""

    verdict: Verdict = "accept"
    rule: str | None = None  # who decided; None: nobody, hence accept
    reply: str | None = None
    changes: Changes = UNCHANGED
    delay: float = 0.0
    trail: tuple[Step, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the command goes on."""
        return self.verdict == "accept"


def decide(
    phase: Phase,
    facts: Facts,
    policy: CompiledPolicy,
    known: Known | None = None,
    *,
    before: Changes = UNCHANGED,
    explain: bool = False,
) -> Decision:
    """Ask the rules of a phase. `before` are the changes of earlier phases; `explain` fills the trail.

    Raises Unanswered when a rule needs a list, a rate or the content check that `known` has no answer for.
    """
    known = known or Known()
    changes, delay, trail = before, 0.0, list[Step]()
    for rule in policy.rules(phase, facts.listener):
        failed = None
        for predicate in rule.predicates:
            if not predicate.test(facts, known):
                failed = predicate
                break
        if failed is not None:
            if explain:
                trail.append(Step(rule.id, matched=False, because=failed.because(facts)))
            continue
        effect = rule.effect
        changes = _changed(changes, rule, facts, known)
        delay = max(delay, effect.delay)
        if explain:
            trail.append(Step(rule.id, matched=True, because=rule.matched_because(facts), did=effect.did))
        if effect.verdict is not None:
            return Decision(effect.verdict, rule.id, effect.reply, changes, delay, tuple(trail))
    if phase == "eod" and policy.check is not None:
        last = policy.check.effect(known)
        if explain:
            trail.append(Step(last.id, matched=True, because="no rule decided", did=last.effect.did))
        return _by_check(last, changes, delay, trail, facts, known)
    return Decision(changes=changes, delay=delay, trail=tuple(trail))


def merged(first: Changes, second: Changes) -> Changes:
    """What both have set; where both set the same thing, the first has."""
    held = first if first.hold is not None else second
    placed = first if first.partition or first.partitionkey else second
    return Changes(
        hold=held.hold,
        holdreason=held.holdreason,
        metadata={**second.metadata, **first.metadata},
        partition=placed.partition,
        partitionkey=placed.partitionkey,
        transport=first.transport or second.transport,
        priority=second.priority if first.priority is None else first.priority,
        headers=first.headers + second.headers,
        rules=first.rules + second.rules,
    )


def _by_check(
    rule: CompiledRule, changes: Changes, delay: float, trail: list[Step], facts: Facts, known: Known
) -> Decision:
    """What the content check's own verdict means, where no rule has decided."""
    effect = rule.effect
    decided = rule.id if effect.verdict is not None else None
    changes = _changed(changes, rule, facts, known)
    return Decision(effect.verdict or "accept", decided, effect.reply, changes, delay, tuple(trail))


def _changed(before: Changes, rule: CompiledRule, facts: Facts, known: Known) -> Changes:
    """`before` with what this rule sets and nobody has set."""
    effect = rule.effect
    names = (rule.id,) if effect.named else ()
    if not effect.changes:
        return replace(before, rules=before.rules + names) if names else before
    result = known.check if isinstance(known.check, CheckResult) else None
    score = None if result is None else result.score
    fields = tuple((name, text.fill(facts, score)) for name, text in effect.headers)
    sets = Changes(
        hold=effect.hold,
        holdreason=None if effect.hold is None else effect.holdreason.fill(facts, score),
        metadata={key: text.fill(facts, score) for key, text in effect.metadata},
        partition=effect.partition,
        partitionkey=effect.partitionkey,
        transport=effect.transport,
        priority=effect.priority,
        headers=fields + result.headers if effect.tag and result is not None else fields,
        rules=names,
    )
    return merged(before, sets)
