"""rules_compile — turns the rules of queued.yaml into functions

Owns: the function for each condition, and the text that says why it matched or not.
Guarantees: a compiled rule neither awaits nor logs. Conditions are evaluated in the order of cost, patterns last. An
    unknown fact (an enhanced code, a site) matches nothing.
See: shared/config/queued/rules.py.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.patterns import matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shared.config.queued.rules import ReplyCondition, ReplyRule
    from shared.config.smtpd.policy_fields import Comparison

_COMPARE: Final = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le, "=": operator.eq}


class Said(NamedTuple):
    """The facts that a rule is asked about: a host's reply, or the fault of a conversation, and its place."""

    text: str  # from the code on, where there is one
    code: int | None
    enhanced: str | None  # as the host sent it
    phase: str | None
    outcome: str  # deferred or failed
    destination: str
    transport: str
    site: str | None = None
    source: str | None = None
    tries: int = 1


class CompiledCondition(NamedTuple):
    """One condition: its name, whether it holds, and what it is asked about."""

    name: str
    holds: Callable[[Said], bool]
    fact: Callable[[Said], object]


class CompiledRule(NamedTuple):
    """A rule with its conditions as functions."""

    rule: ReplyRule
    asked: tuple[CompiledCondition, ...]

    def matches(self, said: Said) -> bool:
        """Whether every condition holds."""
        return all(asked.holds(said) for asked in self.asked)

    def why(self, said: Said) -> str:
        """The conditions that hold; or the first that does not, and what it was asked about."""
        for asked in self.asked:
            if not asked.holds(said):
                fact = asked.fact(said)
                return f"{asked.name} is {'not known' if fact is None else fact}"
        return ", ".join(asked.name for asked in self.asked)


def compile_rules(rules: Iterable[ReplyRule]) -> tuple[CompiledRule, ...]:
    """The rules in their order."""
    return tuple(CompiledRule(rule, tuple(_conditions(rule.condition))) for rule in rules)


def _conditions(condition: ReplyCondition) -> list[CompiledCondition]:
    found: list[CompiledCondition] = []
    if condition.outcome:
        found.append(_within("outcome", frozenset[str](condition.outcome), lambda s: s.outcome))
    if condition.transport:
        found.append(_within("transport", frozenset(condition.transport), lambda s: s.transport))
    if condition.phase:
        found.append(_within("phase", frozenset[str](condition.phase), lambda s: s.phase))
    if condition.tries is not None:
        found.append(_tries(condition.tries))
    if condition.code:
        codes = tuple(code.rstrip("x") for code in condition.code)
        found.append(
            CompiledCondition("code", lambda s: s.code is not None and str(s.code).startswith(codes), lambda s: s.code)
        )
    if condition.enhanced:
        found.append(_enhanced(condition.enhanced))
    if condition.destination:
        found.append(_destination(condition.destination))
    if condition.site:
        found.append(_patterns("site", condition.site, lambda s: s.site))
    if condition.reply:
        found.append(_patterns("reply", condition.reply, lambda s: s.text))
    return found


def _within(name: str, wanted: frozenset[str], fact: Callable[[Said], str | None]) -> CompiledCondition:
    return CompiledCondition(name, lambda said: fact(said) in wanted, fact)


def _tries(comparison: Comparison) -> CompiledCondition:
    compare = _COMPARE[comparison.sign]
    return CompiledCondition("tries", lambda said: compare(said.tries, comparison.value), lambda said: said.tries)


def _enhanced(wanted: Iterable[str]) -> CompiledCondition:
    parts = [status.split(".") for status in wanted]

    def holds(said: Said) -> bool:
        if said.enhanced is None:
            return False
        digits = said.enhanced.split(".")
        return any(all(w in {"*", t} for w, t in zip(each, digits, strict=True)) for each in parts)

    return CompiledCondition("enhanced", holds, lambda said: said.enhanced)


def _destination(wanted: Iterable[str]) -> CompiledCondition:
    domains = [domain.lower().rstrip(".") for domain in wanted]
    exact = frozenset(domain for domain in domains if not domain.startswith("."))
    below = tuple(domain for domain in domains if domain.startswith("."))

    def holds(said: Said) -> bool:
        domain = said.destination.lower().rstrip(".")
        return domain in exact or domain.endswith(below)

    return CompiledCondition("destination", holds, lambda said: said.destination)


def _patterns(name: str, patterns: Iterable[str], fact: Callable[[Said], str | None]) -> CompiledCondition:
    matchers = [matcher(pattern) for pattern in patterns]

    def holds(said: Said) -> bool:
        text = fact(said)
        return text is not None and any(matches(text) for matches in matchers)

    return CompiledCondition(name, holds, fact)
