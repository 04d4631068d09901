"""engine — decides about a client and its mail by rules

Owns: evaluating the rules of one phase in order, and combining their answers. Pure: no clock, no log, no network.
Guarantees: the first rule that decides (accept, reject, defer) ends its phase. Changes add up, and the first rule to
    set a value wins, over all phases of a session. Without a rule everything is accepted and nothing changed.
    An accept opens no relay: the permission to relay is checked elsewhere (smtpd.policy.recipient.may_relay).
Raises: Unanswered, with the question that `known` has no answer to.
See: docs/reference/policy.md; config/smtpd.yaml, `policy`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from smtpd.policy.facts import CheckResult, Facts, Phase

if TYPE_CHECKING:
    from smtpd.policy.compile import CompiledPolicy, CompiledRule
from smtpd.policy.decision import UNCHANGED, Changes, Decision, Known, Step

__all__ = ["CheckResult", "Facts", "Phase"]


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
    """The values of both; where both set the same one, the first wins."""
    if first is UNCHANGED or second is UNCHANGED:
        return second if first is UNCHANGED else first
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
    """The meaning of the content check's own verdict, where no rule has decided."""
    effect = rule.effect
    decided = rule.id if effect.verdict is not None else None
    changes = _changed(changes, rule, facts, known)
    return Decision(effect.verdict or "accept", decided, effect.reply, changes, delay, tuple(trail))


def _changed(before: Changes, rule: CompiledRule, facts: Facts, known: Known) -> Changes:
    """`before` with the values that this rule sets and that were not set yet."""
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
