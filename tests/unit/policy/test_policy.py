"""test_policy — the first decision ends a phase, and changes of other rules accumulate

Owns: examples for smtpd/policy/engine.py, each way of adding up by itself.
See: tests/unit/policy/test_conditions.py for each condition, tests/unit/pages/test_policy_pages.py for each action.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.config.smtpd.policy import Policy
from smtpd.policy.compile import compile_policy
from smtpd.policy.decision import Changes, Decision, Known, Rate, Unanswered
from smtpd.policy.engine import CheckResult, decide, merged
from tests.fixtures.daemons.policies import FACTS, outcome


def test_without_rules_mail_is_accepted_unchanged() -> None:
    assert outcome(phase="rcptto") == Decision()


def test_the_first_rule_that_decides_ends_the_phase() -> None:
    made = outcome(
        {"then": {"transport": "one"}},
        {"if": {"user": ["bob"]}, "then": {"reject": "550 5.7.1 no"}},
        {"then": {"defer": "451 4.7.1 later", "metadata": {"a": "b"}}},
        {"then": {"reject": "550 5.7.1 never asked", "hold": "never"}},
    )
    assert (made.verdict, made.rule, made.reply) == ("defer", "rule-2", "451 4.7.1 later")
    assert made.changes == Changes(transport="one", metadata={"a": "b"}, rules=("rule-0", "rule-2"))


def test_the_first_rule_to_set_a_value_wins() -> None:
    made = outcome(
        {"then": {"hold": "one", "holdreason": "because", "metadata": {"a": "1"}, "priority": 0}},
        {"then": {"hold": "two", "metadata": {"a": "2", "b": "2"}, "partition": "7", "priority": 5}},
        {"then": {"partitionkey": "user", "transport": "relay", "delay": "1s"}},
        {"then": {"addheader": {"X-A": "1"}, "delay": "5s"}},
        {"then": {"addheader": {"X-A": "2"}, "transport": "other", "delay": "2s"}},
    ).changes
    assert (made.hold, made.holdreason, made.priority) == ("one", "because", 0)
    assert made.metadata == {"a": "1", "b": "2"}
    assert (made.partition, made.partitionkey, made.transport) == ("7", None, "relay")
    assert made.headers == (("X-A", "1"), ("X-A", "2"))


def test_the_longest_delay_counts() -> None:
    delays = [{"then": {"delay": each}} for each in ("1s", "5s", "2s")]
    assert outcome(*delays).delay == 5.0


def test_placeholders_are_filled_and_cannot_break_a_line() -> None:
    facts = replace(FACTS, helo="a\r\nX-Evil: 1", user="ålice")
    text = "{helo}|{user}|{client}|{sender}|{recipientdomain}|{size}|{score}|{clientname}|{listener}"
    made = outcome({"then": {"metadata": {"all": text}}}, facts=facts)
    assert made.changes.metadata["all"] == (
        "a??X-Evil: 1|ålice|192.0.2.7|news@lists.sender.example|mail.example.net|1048576|7.50|App1.example.com|default"
    )


def test_merged_changes_prefer_the_first_and_keep_all_keys() -> None:
    one = Changes(hold="a", metadata={"k": "1"}, partitionkey="user", rules=("x",))
    two = Changes(hold="b", holdreason="no", metadata={"k": "2", "l": "2"}, partition="3", priority=1, rules=("y",))
    assert merged(one, two) == Changes(
        hold="a", metadata={"k": "1", "l": "2"}, partitionkey="user", priority=1, rules=("x", "y")
    )
    assert merged(Changes(), two) == two == merged(two, Changes())


def test_a_rate_is_counted_only_if_all_other_conditions_match() -> None:
    rule = {"if": {"rate": {"key": ["user", "client"], "over": "2/1m"}, "user": ["alice"]}, "then": {"hold": "x"}}
    with pytest.raises(Unanswered) as asked:
        outcome(rule)
    question = Rate("rule-0", ("alice", "192.0.2.7/32"), 2, 60.0)
    assert asked.value.question == question
    assert outcome(rule, facts=replace(FACTS, user="bob")).changes.hold is None
    answered = {over: Known({question: over}, check="skipped") for over in (True, False)}
    assert outcome(rule, known=answered[True]).changes.hold == "x"
    assert outcome(rule, known=answered[False]).changes.hold is None


def test_content_is_checked_at_the_first_rule_that_needs_it() -> None:
    with pytest.raises(Unanswered):
        outcome({"if": {"score": ">5"}, "then": {"hold": "x"}}, known=Known())
    with pytest.raises(Unanswered):
        outcome({"then": {"hold": "x"}}, known=Known())
    assert outcome({"then": {"accept": True}}, {"if": {"score": ">5"}, "then": {"hold": "x"}}, known=Known()).accepted


@pytest.mark.parametrize(
    ("action", "settings", "verdict", "hold", "tagged"),
    [
        ("no action", {}, "accept", None, True),
        ("add header", {}, "accept", None, True),
        ("rewrite subject", {}, "accept", None, True),
        ("greylist", {}, "defer", None, False),
        ("soft reject", {}, "defer", None, False),
        ("reject", {}, "reject", None, False),
        ("reject", {"reject": "hold"}, "accept", "contentcheck", True),
        ("reject", {"reject": "accept"}, "accept", None, False),
        ("greylist", {"greylist": "accept"}, "accept", None, False),
    ],
)
def test_each_rspamd_action_has_its_configured_verdict(
    action: str, settings: dict[str, str], verdict: str, hold: str | None, *, tagged: bool
) -> None:
    result = CheckResult(action, 12.0, headers=(("X-Spam", "Yes"),))
    made = outcome(policy={"contentcheck": {"actions": settings}}, known=Known(check=result))
    assert (made.verdict, made.changes.hold) == (verdict, hold)
    assert made.changes.headers == ((("X-Spam", "Yes"),) if tagged else ())


@pytest.mark.parametrize(("whendown", "verdict", "hold"), [("accept", "accept", None), ("hold", "accept", "q")])
def test_whendown_decides_while_rspamd_is_down(whendown: str, verdict: str, hold: str | None) -> None:
    made = outcome(policy={"contentcheck": {"whendown": whendown, "hold": "q"}}, known=Known(check="down"))
    assert (made.verdict, made.changes.hold) == (verdict, hold)


def test_by_default_mail_is_deferred_while_rspamd_is_down() -> None:
    made = outcome(known=Known(check="down"))
    assert (made.verdict, made.reply) == ("defer", "451 4.3.0 Local error in processing, try again")


def test_a_rule_takes_precedence_over_the_verdict_of_the_content_check() -> None:
    made = outcome(
        {"if": {"score": ">10", "user": ["alice"]}, "then": {"accept": True, "metadata": {"spam": "{score}"}}},
        known=Known(check=CheckResult("reject", 20.0)),
    )
    assert made.accepted
    assert made.changes.metadata == {"spam": "20.00"}


def test_a_rule_applies_only_to_its_servers() -> None:
    rule = {"id": "a", "servers": ["public"], "then": {"reject": "550 5.7.1 no"}}
    compiled = compile_policy(Policy.model_validate({"rules": [rule]}), ["public", "submission"])
    verdicts = [decide("rcptto", replace(FACTS, listener=name), compiled).verdict for name in ("public", "submission")]
    assert verdicts == ["reject", "accept"]


def test_an_accept_does_not_end_a_standing_hold() -> None:
    policy = {"holds": [{"id": "h", "if": {"user": ["alice"]}, "hold": "standing"}]}
    made = outcome({"then": {"accept": True, "hold": "rule"}}, phase="rcptto", policy=policy)
    assert (made.changes.hold, made.changes.holdreason) == ("standing", "rule h")


def test_the_trail_explains_each_rule() -> None:
    written = [
        {"id": "bob", "if": {"user": ["bob"]}, "then": {"hold": "x"}},
        {"id": "slow", "if": {"user": ["alice"]}, "then": {"delay": "2s", "metadata": {"a": "{user}"}}},
        {"id": "out", "then": {"reject": "550 5.7.1 no"}},
        {"id": "late", "then": {"accept": True}},
    ]
    made = decide("rcptto", FACTS, compile_policy(Policy.model_validate({"rules": written})), explain=True)
    assert [(step.rule, step.matched, step.because, step.did) for step in made.trail] == [
        ("bob", False, 'user: "alice"', ""),
        ("slow", True, 'user: "alice"', "metadata: a: {user}; delay: 2s"),
        ("out", True, "always", "reject: 550 5.7.1 no"),
    ]
