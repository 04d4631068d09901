"""rules — applies the operator's rules to an outcome

Owns: Judgement, and the way the rules of queued.yaml decide it: for each kind of action the first rule that matches.
Guarantees: pure. A delivery is never judged. No rule bounces mail while a peer may have it already (uncertain), nor for
    trouble that is our own, a refused login included; a rule that waits, holds or suspends applies there too.
See: shared/config/queued/rules.py; docs/how-to/deliver/react-to-replies.md; RFC 3463 section 3.1 (the class of an
    enhanced code).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.outcome.rules_compile import Said
from queued.values import OnHold

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from queued.outcome.rules_compile import CompiledRule
    from shared.config.queued.rules import ReplyRule
    from shared.mail.outcome import Kind, Outcome


_ENHANCED: Final = re.compile(r"[2-5][0-9]{2} ([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)")


class Suspension(NamedTuple):
    """Nothing is sent there for so long. of: destination, site or source."""

    seconds: float
    of: str
    reason: str


class Judgement(NamedTuple):
    """The decision about a recipient, and about the destination it belongs to.

    wait: at least so long until the next try. fired: the ids of the rules that decided something, in their order.
    """

    outcome: Outcome
    wait: timedelta | None = None
    held: OnHold | None = None
    suspend: Suspension | None = None
    lower: bool = False
    fired: tuple[str, ...] = ()


def judge(rules: Sequence[CompiledRule], outcome: Outcome, said: Said) -> Judgement:
    """The rules' decision about an outcome; the outcome itself where none matches."""
    verdict = Judgement(outcome)
    if outcome.kind == "delivered" or not rules:
        return verdict
    decided = False
    for compiled in rules:
        rule = compiled.rule
        fate = not decided and _decides(rule, outcome)
        suspends = verdict.suspend is None and rule.suspend is not None
        lowers = not verdict.lower and rule.concurrency is not None
        if not (fate or suspends or lowers) or not compiled.matches(said):
            continue
        if fate:
            decided = True
            verdict = _fate(rule, verdict)
        if suspends and rule.suspend is not None:
            reason = rule.reason or f"rule {rule.id}: {said.text}"
            verdict = verdict._replace(suspend=Suspension(rule.suspend.total_seconds(), rule.suspended, reason))
        verdict = verdict._replace(lower=verdict.lower or lowers, fired=(*verdict.fired, rule.id))
    return verdict


def said_by(
    outcome: Outcome,
    *,
    destination: str,
    transport: str,
    site: str | None = None,
    source: str | None = None,
    tries: int = 1,
) -> Said:
    """The facts of this outcome for rules: a reply without the words that a fault puts before it."""
    text, code = outcome.text, outcome.reply_code
    if code is not None:
        text = text[max(text.find(str(code)), 0) :]
    # Not outcome.enhanced: its class was made to agree with what becomes of the mail.
    sent = _ENHANCED.match(text) if code is not None else None
    return Said(
        text,
        code,
        sent and sent[1],
        outcome.phase,
        outcome.kind,
        destination,
        transport,
        site,
        source,
        tries,
    )


def _decides(rule: ReplyRule, outcome: Outcome) -> bool:
    """Whether the rule has a say in what becomes of this recipient."""
    if rule.bounce is not None:
        return not outcome.uncertain and outcome.scope != "us" and outcome.phase != "auth"
    return rule.defer is not None or rule.hold is not None


def _fate(rule: ReplyRule, verdict: Judgement) -> Judgement:
    outcome = verdict.outcome
    if rule.bounce is not None:
        return verdict._replace(outcome=_as(outcome, "failed", f"{rule.bounce} ({outcome.text})"))
    if rule.defer is not None:
        return verdict._replace(outcome=_as(outcome, "deferred", outcome.text), wait=rule.defer)
    return verdict._replace(held=OnHold(rule.reason or f"rule {rule.id}", rule.hold))


def _as(outcome: Outcome, kind: Kind, text: str) -> Outcome:
    """The outcome as another kind, its enhanced code made to agree."""
    enhanced = outcome.enhanced and ("5" if kind == "failed" else "4") + outcome.enhanced[1:]
    return replace(outcome, kind=kind, enhanced=enhanced, text=text)
