"""test_rules — the rule that decides about a reply, and its limits"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.outcome.classify import classify_fault, classify_reply
from queued.outcome.react import Reactions, suspending
from queued.outcome.rules import Judgement, judge, said_by
from queued.outcome.rules_compile import compile_rules
from queued.smtp.transaction import Fault
from shared.config.queued.rules import ReplyRule
from shared.mail.outcome import Outcome
from shared.mail.smtp_reply import Reply, ReplyParser

if TYPE_CHECKING:
    from queued.waiting.watchdog import Phase
    from tests.fixtures.heard import Heard


def reply(text: str) -> Reply:
    """The reply of a host, parsed as in a session."""
    [parsed] = ReplyParser().feed(f"{text}\r\n".encode())
    return parsed


def rules(*written: dict[str, Any]) -> list[ReplyRule]:
    """Rules as in queued.yaml, with ids r1, r2, …"""
    return [ReplyRule.model_validate({"id": f"r{number}", **each}) for number, each in enumerate(written, 1)]


def judged(
    written: list[ReplyRule], text: str, phase: Phase = "rcpt", destination: str = "gmail.com", **known: Any
) -> Judgement:
    """The judgement of a recipient after this reply."""
    outcome = classify_reply(reply(text), phase)
    return judge(
        compile_rules(written), outcome, said_by(outcome, destination=destination, transport="default", **known)
    )


FLOOD = "421 4.7.28 Our system has detected an unusual rate of mail"


def test_without_a_rule_the_outcome_is_unchanged() -> None:
    assert judged([], FLOOD) == Judgement(classify_reply(reply(FLOOD), "rcpt"))


def test_a_rule_defers_longer_and_keeps_the_reply() -> None:
    verdict = judged(rules({"if": {"reply": ["/unusual rate/"]}, "defer": "2h"}), FLOOD)
    assert (verdict.wait, verdict.outcome.kind, verdict.outcome.text) == (timedelta(hours=2), "deferred", FLOOD)
    assert verdict.fired == ("r1",)


def test_a_rule_can_defer_a_permanent_refusal() -> None:
    verdict = judged(
        rules({"if": {"code": ["550"], "reply": ["*too many messages*"]}, "defer": "1h"}), "550 5.7.1 Too many messages"
    )
    assert (verdict.outcome.kind, verdict.outcome.enhanced, verdict.outcome.reply_code) == ("deferred", "4.7.1", 550)


def test_a_bounce_contains_our_text_and_the_reply() -> None:
    verdict = judged(rules({"if": {"enhanced": ["4.1.1"]}, "bounce": "No such user"}), "450 4.1.1 unknown")
    assert (verdict.outcome.kind, verdict.outcome.enhanced) == ("failed", "5.1.1")
    assert verdict.outcome.text == "No such user (450 4.1.1 unknown)"


def test_a_hold_has_its_quarantine_and_reason() -> None:
    verdict = judged(rules({"if": {"code": ["5xx"]}, "hold": "review", "reason": "look at it"}), "550 5.7.1 no")
    assert verdict.held is not None
    assert (verdict.held.quarantine, verdict.held.reason) == ("review", "look at it")


def test_the_first_action_of_each_kind_decides() -> None:
    verdict = judged(
        rules(
            {"if": {"code": ["421"]}, "suspend": "1h", "suspended": "site"},
            {"if": {"code": ["4xx"]}, "defer": "2h"},
            {"if": {"code": ["4xx"]}, "hold": "late"},
            {"if": {"code": ["4xx"]}, "suspend": "5h", "concurrency": "lower"},
        ),
        FLOOD,
    )
    assert (verdict.wait, verdict.held, verdict.lower) == (timedelta(hours=2), None, True)
    assert verdict.suspend is not None
    assert (verdict.suspend.seconds, verdict.suspend.of) == (3600, "site")
    assert verdict.fired == ("r1", "r2", "r4")


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({"reply": ["421*"]}, True),
        ({"reply": ["*UNUSUAL*"]}, True),
        ({"reply": ["unusual"]}, False),
        ({"reply": [r"/^421 4\.7\.28 /"]}, True),
        ({"code": ["421"]}, True),
        ({"code": ["42x"]}, True),
        ({"code": ["5xx", "450"]}, False),
        ({"enhanced": ["4.7.28"]}, True),
        ({"enhanced": ["4.7.*"]}, True),
        ({"enhanced": ["4.*.1"]}, False),
        ({"enhanced": ["5.7.28"]}, False),
        ({"phase": ["mail", "rcpt"]}, True),
        ({"phase": ["dot"]}, False),
        ({"outcome": ["deferred"]}, True),
        ({"outcome": ["failed"]}, False),
        ({"destination": ["Gmail.com"]}, True),
        ({"destination": [".gmail.com"]}, False),
        ({"destination": [".com"]}, True),
        ({"transport": ["default"]}, True),
        ({"transport": ["other"]}, False),
        ({"site": ["*.google.com"]}, True),
        ({"site": ["*.example"]}, False),
        ({"tries": ">=3"}, True),
        ({"tries": "<3"}, False),
        ({"code": ["421"], "destination": ["yahoo.com"]}, False),
    ],
)
def test_a_condition_matches_the_reply(condition: dict[str, Any], *, matches: bool) -> None:
    verdict = judged(rules({"if": condition, "defer": "1h"}), FLOOD, site="mx.google.com", tries=3)
    assert bool(verdict.fired) is matches


def test_a_condition_on_an_unknown_fact_does_not_match() -> None:
    for condition in ({"site": ["*"]}, {"enhanced": ["4.*.*"]}):
        assert not judged(rules({"if": condition, "defer": "1h"}), "421 go away").fired


def test_a_refused_greeting_is_matched_by_its_reply() -> None:
    said = reply("554 5.7.1 your address is listed")
    outcome = classify_fault(Fault("refused", "greeting", f"host refused to talk to us: {said}", said))
    facts = said_by(outcome, destination="example.com", transport="default")
    assert (facts.text, facts.enhanced, facts.code, facts.phase) == (str(said), "5.7.1", 554, "greeting")
    [rule] = rules({"if": {"reply": ["554 5.7.1 *"], "phase": ["greeting"]}, "suspend": "1h"})
    assert judge(compile_rules([rule]), outcome, facts).suspend is not None


def test_a_fault_without_a_reply_is_matched_by_its_text() -> None:
    outcome = classify_fault(Fault("connect", "connect", "connection refused"))
    facts = said_by(outcome, destination="example.com", transport="default")
    assert (facts.text, facts.enhanced) == ("connection refused", None)


def test_a_rule_cannot_bounce_uncertain_mail_or_our_own_faults() -> None:
    [rule] = rules({"if": {"outcome": ["deferred"]}, "bounce": "no"})
    lost = classify_fault(Fault("closed", "dot", "peer hung up"))
    ours = Outcome("deferred", "us", None, "4.3.5", "no key")
    for outcome in (lost, ours):
        verdict = judge(compile_rules([rule]), outcome, said_by(outcome, destination="a.test", transport="default"))
        assert verdict.outcome.kind == "deferred"


def test_rules_never_apply_to_a_delivery() -> None:
    assert not judged(rules({"if": {"code": ["2xx"]}, "bounce": "no"}), "250 2.0.0 Ok", phase="dot").fired


def test_a_rule_that_raises_is_ignored(heard: Heard) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("full")

    reactions = Reactions(rules({"if": {"code": ["421"]}, "defer": "2h", "suspend": "1h"}), suspend=broken)
    outcome = classify_reply(reply(FLOOD), "rcpt")
    verdict = reactions.judge(outcome, said_by(outcome, destination="gmail.com", transport="default"))
    assert verdict == Judgement(outcome)
    [said] = heard.all("rules.failed")
    assert "full" in said["error"]


def test_many_recipients_of_one_reply_suspend_once(heard: Heard) -> None:
    asked: list[tuple[dict[str, list[str]], float, str]] = []
    lowered: list[tuple[str, str]] = []
    reactions = Reactions(
        rules({"if": {"code": ["421"]}, "suspend": "1h", "reason": "rate", "concurrency": "lower"}),
        suspend=suspending(lambda selection, seconds, reason: asked.append((selection, seconds, reason))),
        lower=lambda transport, destination: lowered.append((transport, destination)),
    )
    outcome = classify_reply(reply(FLOOD), "rcpt")
    for _ in range(50):
        reactions.judge(outcome, said_by(outcome, destination="gmail.com", transport="default"))
    assert asked == [({"transport": ["default"], "destination": ["gmail.com"]}, 3600.0, "rate")]
    assert lowered == [("default", "gmail.com")]
    assert heard.all("rules.fired")[0]["rules"] == "r1"


@pytest.mark.parametrize(
    ("of", "known", "selection"),
    [
        ("site", {"site": "mx.google.com"}, {"transport": ["default"], "site": ["mx.google.com"]}),
        (
            "source",
            {"source": "192.0.2.1"},
            {"transport": ["default"], "destination": ["gmail.com"], "source": ["192.0.2.1"]},
        ),
        ("site", {}, None),
        ("source", {}, None),
    ],
)
def test_a_suspend_selects_the_configured_scope(
    of: str, known: dict[str, Any], selection: dict[str, list[str]] | None
) -> None:
    asked: list[dict[str, list[str]]] = []
    [rule] = rules({"if": {"code": ["421"]}, "suspend": "1h", "suspended": of})
    reactions = Reactions([rule], suspend=suspending(lambda found, _seconds, _reason: asked.append(found)))
    outcome = classify_reply(reply(FLOOD), "rcpt")
    reactions.judge(outcome, said_by(outcome, destination="gmail.com", transport="default", **known))
    assert asked == ([] if selection is None else [selection])


def test_a_reload_replaces_the_rules() -> None:
    reactions = Reactions(rules({"if": {"code": ["421"]}, "defer": "2h"}))
    outcome = classify_reply(reply(FLOOD), "rcpt")
    said = said_by(outcome, destination="gmail.com", transport="default")
    assert reactions.judge(outcome, said).wait is not None
    reactions.use([])
    assert reactions.judge(outcome, said).wait is None
