"""test_policy_rules — any rules decide as if read in order

Owns: smtpd/policy/engine.py against a slow reading of the same rules, and the laws of its being pure.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from shared.config.smtpd.policy import Policy
from smtpd.policy.compile import compile_policy
from smtpd.policy.decision import UNCHANGED, Known
from smtpd.policy.engine import CheckResult, decide, merged
from tests.fixtures.daemons.policies import CHECKED, FACTS

if TYPE_CHECKING:
    from smtpd.policy.decision import Changes, Decision

#: Conditions, and whether FACTS match.
PLAIN = st.sampled_from(
    [
        ({"user": ["alice"]}, True),
        ({"user": ["bob"]}, False),
        ({"client": ["192.0.2.0/24"]}, True),
        ({"senderdomain": ["*.other.example"]}, False),
        ({"recipients": ">1"}, True),
        ({"header": {"X-Tenant": ["b*"]}}, False),
        ({"symbols": ["BAYES_*"]}, True),
        ({"score": "<0"}, False),
        ({}, True),
    ]
)


def nested(inner: st.SearchStrategy[tuple[dict[str, Any], bool]]) -> st.SearchStrategy[tuple[dict[str, Any], bool]]:
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda one: ({"not": one[0]}, not one[1])),
        some.map(lambda many: ({"any": [c for c, _ in many]}, any(true for _, true in many))),
        some.map(lambda many: ({"all": [c for c, _ in many]}, all(true for _, true in many))),
    )


CONDITIONS = st.recursive(PLAIN, nested, max_leaves=6)
CHANGES = st.dictionaries(
    st.sampled_from(["hold", "transport", "partition", "priority", "metadata", "delay"]), st.integers(1, 3), min_size=1
)
DECISIONS = st.sampled_from([None, None, None, ("accept", True), ("reject", "550 5.7.1 a"), ("defer", "450 4.7.1 b")])


def action(changes: dict[str, int], decision: tuple[str, Any] | None) -> dict[str, Any]:
    written: dict[str, Any] = {key: f"{key}{value}" for key, value in changes.items()}
    if "metadata" in changes:
        written["metadata"] = {f"k{changes['metadata']}": "v", "common": str(changes["metadata"])}
    if "priority" in changes:
        written["priority"] = changes["priority"]
    if "delay" in changes:
        written["delay"] = f"{changes['delay']}s"
    return written | ({} if decision is None else {decision[0]: decision[1]})


RULES = st.lists(st.tuples(CONDITIONS, st.builds(action, CHANGES, DECISIONS)), max_size=6)


def decided(rules: list[Any], *, explain: bool = False, before: Changes = UNCHANGED) -> Decision:
    written = [
        {"id": f"r{number}", "phase": "eod", "if": condition, "then": then}
        for number, ((condition, _), then) in enumerate(rules)
    ]
    policy = Policy.model_validate({"rules": written, "contentcheck": {}})
    return decide("eod", FACTS, compile_policy(policy), CHECKED, before=before, explain=explain)


@given(RULES)
def test_rules_decide_as_if_read_in_order(rules: list[Any]) -> None:
    verdict, seen = "accept", dict[str, Any]()
    metadata, matched, delay = dict[str, str](), list[str](), 0
    for number, ((_, true), then) in enumerate(rules):
        if not true:
            continue
        matched.append(f"r{number}")
        for key in ("hold", "transport", "partition", "priority"):
            if key in then:
                seen.setdefault(key, then[key])
        metadata = {**then.get("metadata", {}), **metadata}
        delay = max(delay, int(then.get("delay", "0s")[:-1]))
        deciding = {"accept", "reject", "defer"} & set(then)
        if deciding:
            [verdict] = deciding
            break
    made = decided(rules)
    assert made.verdict == verdict
    assert {key: getattr(made.changes, key) for key in seen} == seen
    assert (made.changes.metadata, made.delay, list(made.changes.rules)) == (metadata, delay, matched)
    assert (made.reply is None) == made.accepted


@given(RULES)
def test_decisions_are_repeatable_with_and_without_explanation(rules: list[Any]) -> None:
    assert replace(decided(rules, explain=True), trail=()) == decided(rules) == decided(rules)


@given(RULES, RULES)
def test_changes_of_an_earlier_phase_take_precedence(first: list[Any], second: list[Any]) -> None:
    before = decided(first).changes
    assert decided(second, before=before).changes == merged(before, decided(second).changes)


@given(st.sampled_from(["down", "skipped"]), RULES)
def test_without_a_verdict_conditions_on_score_and_symbols_do_not_match(why: Any, rules: list[Any]) -> None:
    held = [
        ((condition, true), {"hold": "x"}) for (condition, true), _ in rules if {"score", "symbols"} & set(condition)
    ]
    written = [{"id": f"r{n}", "phase": "eod", "if": c, "then": then} for n, ((c, _), then) in enumerate(held)]
    policy = compile_policy(Policy.model_validate({"rules": written, "contentcheck": {"whendown": "accept"}}))
    assert decide("eod", FACTS, policy, Known(check=why)).changes.hold is None
    assert isinstance(CHECKED.check, CheckResult)
