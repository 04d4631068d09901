"""rules — `pillarbox rules`: tests the rules of queued.yaml against a reply

Owns: the command line of test, the table, `--json` and the exit status.
Guarantees: nothing is written, suspended or started. The exit status is 0 when a rule decides, 1 when none does; a
    configuration that cannot be used is 78 (sysexits.h).
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/deliver/react-to-replies.md; queued/outcome/rules.py.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, get_args

from operate.transports import check_option
from queued.outcome.classify import classify_fault, classify_reply
from queued.outcome.rules import Judgement, judge, said_by
from queued.outcome.rules_compile import compile_rules
from queued.smtp.transaction import Fault
from queued.waiting.watchdog import Phase
from scripts.options import add_config, count
from scripts.output import records
from scripts.output.table import Column, Table
from scripts.terminal import printable
from shared.config.queued.load import load_queued
from shared.mail.smtp_reply import Reply, ReplyParser
from shared.masking import show

if TYPE_CHECKING:
    from queued.outcome.rules_compile import CompiledRule, Said
    from shared.mail.outcome import Outcome

_PHASES: tuple[Phase, ...] = get_args(Phase.__value__)
_TO_TALK = frozenset({"connect", "greeting", "helo", "starttls", "auth"})


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `rules` and its verbs to the command line."""
    parser = subparsers.add_parser("rules", help="test the rules of queued.yaml against a reply")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("test", help="show which rule decides about a reply, and why, rule by rule")
    add_config(verb)
    verb.add_argument(
        "--reply", required=True, type=_reply, metavar="TEXT", help='as the host says it: "421 4.7.28 Too many"'
    )
    verb.add_argument("--phase", choices=_PHASES, default="rcpt", help="the phase that it answers (rcpt)")
    verb.add_argument("--destination", default="example.com", metavar="DOMAIN", help="the recipient's (example.com)")
    verb.add_argument("--transport", default="default", metavar="ID", help="the transport (default)")
    verb.add_argument("--site", metavar="NAME", help="the mail exchangers' common name (default: unknown)")
    verb.add_argument("--source", metavar="ADDRESS", help="the address we send from (default: unknown)")
    verb.add_argument("--tries", type=count, default=1, metavar="N", help="which try it is (1)")
    verb.add_argument("--json", action="store_true", help="one JSON object")
    verb.set_defaults(func=test)


def test(options: argparse.Namespace) -> int:
    """Say what the rules make of it; 1 when none decides."""
    rules = compile_rules(load_queued(options.config / "queued.yaml").rules)
    check_option(options.config, [options.transport])
    outcome = _outcome(options.reply, options.phase)
    said = said_by(
        outcome,
        destination=options.destination,
        transport=options.transport,
        site=options.site,
        source=options.source,
        tries=options.tries,
    )
    verdict = judge(rules, outcome, said)
    if options.json:
        records.one(_as_json(outcome, said, verdict, rules))
    else:
        _show(outcome, said, verdict, rules)
    return 0 if verdict.fired else 1


def _outcome(reply: Reply, phase: Phase) -> Outcome:
    """The outcome without rules."""
    if phase in _TO_TALK:
        return classify_fault(Fault("refused", phase, f"host refused to talk to us: {reply}", reply))
    return classify_reply(reply, phase)


def _show(outcome: Outcome, said: Said, verdict: Judgement, rules: tuple[CompiledRule, ...]) -> None:
    rows = []
    for compiled in rules:
        matched = compiled.matches(said)
        # A rule that matches after another has said the same decides nothing.
        decides = "yes" if compiled.rule.id in verdict.fired else "too late" if matched else "no"
        rows.append((compiled.rule.id, decides, _does(compiled) if matched else "", compiled.why(said)))
    Table((Column("rule"), Column("decides"), Column("does", least=20), Column("because", wraps=True))).print(rows)
    print(printable(f"without rules: {_fate(Judgement(outcome))}"))
    print(printable(f"with rules: {'; '.join(_effects(verdict))}" if verdict.fired else "with rules: the same"))


def _does(compiled: CompiledRule) -> str:
    """The rule's actions as they are written."""
    rule = compiled.rule.model_dump(exclude_unset=True, exclude={"id", "condition", "reason", "suspended"})
    return ", ".join(f"{name} {value}" for name, value in rule.items())


def _fate(verdict: Judgement) -> str:
    """The decision about the recipient."""
    if verdict.held is not None:
        return f"held under {verdict.held.quarantine}: {verdict.held.reason}"
    outcome = verdict.outcome
    what = {"deferred": "tried again", "failed": "given up", "delivered": "delivered"}[outcome.kind]
    return what + (f" after {verdict.wait} at the earliest" if verdict.wait else "") + f" ({outcome.scope})"


def _effects(verdict: Judgement) -> list[str]:
    found = [_fate(verdict)]
    if verdict.suspend is not None:
        found.append(f"the {verdict.suspend.of} is suspended for {verdict.suspend.seconds:g} s")
    if verdict.lower:
        found.append("one connection fewer to the destination")
    return found


def _as_json(outcome: Outcome, said: Said, verdict: Judgement, rules: tuple[CompiledRule, ...]) -> dict[str, Any]:
    return {
        "without": {"outcome": outcome.kind, "scope": outcome.scope, "enhanced": outcome.enhanced},
        "outcome": "held" if verdict.held is not None else verdict.outcome.kind,
        "text": verdict.outcome.text,
        "wait": verdict.wait.total_seconds() if verdict.wait else None,
        "hold": verdict.held and verdict.held.quarantine,
        "suspend": verdict.suspend and {"seconds": verdict.suspend.seconds, "of": verdict.suspend.of},
        "lower": verdict.lower,
        "fired": list(verdict.fired),
        "rules": [{"id": c.rule.id, "matched": c.matches(said), "because": c.why(said)} for c in rules],
    }


def _reply(text: str) -> Reply:
    parser = ReplyParser()
    replies = parser.feed(f"{text}\r\n".encode())
    if len(replies) != 1 or parser.broken:
        raise argparse.ArgumentTypeError(
            f"{show(text)} is not a valid reply; allowed: a code from 200 to 599, an optional enhanced code, and text"
        )
    return replies[0]
