"""test_policy_config — every mistake in a policy is one line with the place, the fault and the allowed values

Owns: examples of policies, on real files, that the models in shared/config refuse or read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.policy_condition import PHASES, known_at
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

RULE = "policy: {rules: [{id: a, %s}]}"
REJECT = "then: {reject: 550 5.7.1 no}"


def problems(path: Path, text: str) -> list[str]:
    file = path / "smtpd.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_smtpd(file, {})
    return [line.removeprefix(f"{file}:1: policy.") for line in str(refused.value).splitlines()]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("phase: data, " + REJECT, 'phase: "data" is not usable here; allowed: connect, helo, auth, mailfrom, rcptto'),
        ("phase: connect, if: {helo: [a]}, " + REJECT, "if.helo: helo is not known at connect; allowed: a rule at hel"),
        ("phase: helo, if: {user: [a]}, " + REJECT, "if.user: user is not known at helo; allowed: a rule at auth, mai"),
        ("phase: auth, if: {authenticated: true}, " + REJECT, "if.authenticated: authenticated is not known at auth; "),
        ("phase: mailfrom, if: {recipients: '>1'}, " + REJECT, "if.recipients: recipients is not known at mailfrom; "),
        ("if: {header: {Subject: ['*']}}, " + REJECT, "if.header: header is not known at rcptto; allowed: a rule at e"),
        ("phase: helo, if: {any: [{not: {sender: ['']}}]}, " + REJECT, "if.any[0].not.sender: sender is not known at"),
        ("phase: connect, if: {rate: {key: [user], over: 1/1h}}, " + REJECT, "if.rate.key[0]: user is not known at co"),
        ("phase: connect, then: {metadata: {a: '{recipient}'}}", "then.metadata.a: {recipient} is not known at connec"),
        (
            "if: {in: {list: none, of: user}}, " + REJECT,
            'if.in.list: list "none" does not exist; allowed: none, since po',
        ),
        ("phase: eod, if: {score: '>1'}, " + REJECT, "if.score: nothing checks content; allowed: with a section polic"),
        ("servers: [b], " + REJECT, 'servers[0]: server "b" does not exist; allowed: default'),
        ("servers: [], " + REJECT, "servers: the list is empty; allowed: at least one entry"),
        ("if: {helo: ['/(/']}, phase: helo, " + REJECT, 'if.helo[0]: "/(/" is not a regular expression (missing ): ()'),
        ("if: {recipients: 10}, " + REJECT, "if.recipients: 10 is not a valid comparison; allowed: a sign and a whole"),
        ("if: {size: '>1MB'}, " + REJECT, 'if.size: ">1MB" is not a valid comparison; allowed: a sign and a size,'),
        ("if: {tls: yes}, " + REJECT, 'if.tls: "yes" is not usable here; allowed: true or false'),
        ("if: {tlsversion: 1.2}, " + REJECT, "if.tlsversion: 1.2 is not usable here; allowed: 1.2 or 1.3 (in quotes)"),
        ("if: {time: [{hours: 8-18}]}, " + REJECT, 'if.time[0].hours: "8-18" is not a valid span of hours; allowed:'),
        ("if: {time: [{hours: '08:00-08:00'}]}, " + REJECT, 'if.time[0].hours: "08:00-08:00" is not a valid span '),
        ("if: {time: [{zone: Berlin}]}, " + REJECT, 'if.time[0].zone: "Berlin" is not a time zone; allowed: a name of'),
        ("if: {rate: {key: [user], over: 100}}, " + REJECT, "if.rate.over: 100 is not a valid rate; allowed: a number"),
        ("if: {rate: {key: [user], over: 9/30d}}, " + REJECT, 'if.rate.over: "9/30d" is not a valid rate; allowed: a '),
        ("if: {nonsense: 1}, " + REJECT, "if.nonsense: unknown key (value 1); allowed: client, clientname, helo, user"),
        ("then: {}", "then: the rule does nothing; allowed: at least one of accept, reject, defer, hold"),
        (
            "then: {discard: true}",
            "then.discard: discard does not exist, because accepted mail is never lost; allowed: rej",
        ),
        ("then: {accept: true, reject: 550 5.7.1 no}", "then: accept and reject exclude each other; allowed: one of"),
        ("then: {holdreason: a}", "then.holdreason: requires hold; allowed: both, or neither"),
        ("then: {reject: 450 4.7.1 no}", 'then.reject: "450 4.7.1 no" is not a valid reply; allowed: a code 5xx, an'),
        ("then: {reject: 550 4.7.1 no}", 'then.reject: "550 4.7.1 no" is not a valid reply; allowed: a code 5xx, an'),
        ("then: {reject: 550 no}", 'then.reject: "550 no" is not a valid reply; allowed: a code 5xx, an enhanced code'),
        ("then: {defer: 550 5.7.1 no}", 'then.defer: "550 5.7.1 no" is not a valid reply; allowed: a code 4xx, an'),
        ('then: {defer: "450 4.7.1 a\\r\\n250 b"}', 'then.defer: "450 4.7.1 a\\r\\n250 b" is not a valid reply; allow'),
        ("then: {priority: 10}", "then.priority: 10 is not a usable number; allowed: a whole number from -9 to 9"),
        ("then: {delay: 2m}", 'then.delay: "2m" is out of range; allowed: a duration above zero, at most 1m'),
        ("then: {metadata: {_partid: '1'}}", 'then.metadata._partid: "_partid" is not usable here; allowed: text that'),
        ("then: {metadata: {a: '{nobody}'}}", 'then.metadata.a: "{nobody}" has an unknown placeholder; allowed: in br'),
        ("then: {metadata: {a: 'x{'}}", 'then.metadata.a: "x{" has an unknown placeholder; allowed: in braces client'),
        ("then: {addheader: {X-A: b}}", "then.addheader: cannot be done at rcptto, since all recipients share one con"),
        ("phase: eod, if: {recipientdomain: [b]}, then: {addheader: {X-A: b}}", "then.addheader: cannot depend on rec"),
        ("phase: eod, then: {addheader: {From: b}}", 'then.addheader.From: "From" is not ours to add; allowed: fields'),
        ("phase: eod, then: {addheader: {'X: A': b}}", 'then.addheader["X: A"]: "X: A" is not a valid field name; a'),
        ('phase: eod, then: {addheader: {X-A: "b\\nX-B: c"}}', 'then.addheader.X-A: "b\\nX-B: c" is not usable here;'),
        ("then: {partition: a, partitionkey: user}", "then.partitionkey: and partition exclude each other; allowed: o"),
        ("then: {partitionkey: tenant}", 'then.partitionkey: "tenant" is not usable here; allowed: recipientdomain, '),
    ],
)  # fmt: skip
def test_mistakes_in_rules_are_reported(rule: str, problem: str, tmp_path: Path) -> None:
    [found] = problems(tmp_path, RULE % rule)
    assert found.startswith(f"rules[0].{problem}")
    assert "allowed: " in found


@pytest.mark.parametrize(
    ("policy", "problem"),
    [
        ("lists: [{id: a}]", "lists[0]: the list has no source or two; allowed: either file or query"),
        (
            "lists: [{id: a, file: a, query: a}]",
            "lists[0]: the list has no source or two; allowed: either file or query",
        ),
        (
            "lists: [{id: a, query: SELECT 1}]",
            "lists[0].query: does not ask for a value; allowed: SQL that contains %(v",
        ),
        (
            "contentcheck: {url: 'https://a'}",
            'contentcheck.url: "https://a" is not a valid rspamd address; allowed: ht',
        ),
        (
            "contentcheck: {whendown: reject}",
            'contentcheck.whendown: "reject" is not usable here; allowed: accept, hold',
        ),
        (
            "contentcheck: {actions: {reject: drop}}",
            'contentcheck.actions.reject: "drop" is not usable here; allowed: ',
        ),
        ("holds: [{id: a, hold: b c}]", 'holds[0].hold: "b c" is not usable here; allowed: 1 to 64 of A-Z'),
        (
            "holds: [{id: a, hold: b, holdreason: '{score}'}]",
            "holds[0].holdreason: {score} is not known at rcptto; allo",
        ),
        ("partitionkey: header", 'partitionkey: "header" is not usable here; allowed: recipientdomain, recipient, '),
        (
            "holds: [{id: a, hold: b}], rules: [{id: a, then: {accept: true}}]",
            'rules[0].id: "a" is already a hold; allowed: each id once',
        ),
    ],
)
def test_mistakes_outside_rules_are_reported(policy: str, problem: str, tmp_path: Path) -> None:
    [found] = problems(tmp_path, f"policy: {{{policy}}}")
    assert found.startswith(problem)


def test_a_fact_known_in_one_phase_is_known_in_later_phases() -> None:
    for name in ("helo", "user", "sender", "recipient", "header", "client"):
        known = [known_at(name, phase) for phase in PHASES]
        assert known == sorted(known)
        assert known[-1]
