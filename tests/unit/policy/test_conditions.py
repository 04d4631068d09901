"""test_conditions — each condition of a rule matches its facts only, and no unknown fact

Owns: examples for smtpd/policy/conditions.py, smtpd/policy/times.py and smtpd/policy/headers.py.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from shared.mail.address import parse
from shared.mail.message import Address
from smtpd.policy.decision import Known
from smtpd.policy.engine import Facts
from smtpd.policy.headers import HeaderFields
from smtpd.policy.texts import COUNTED
from tests.fixtures.daemons.policies import FACTS, matches, outcome

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({}, True),
        ({"client": ["192.0.2.0/24"]}, True),
        ({"client": ["198.51.100.0/24", "192.0.2.7/32"]}, True),
        ({"client": ["198.51.100.0/24", "::/0"]}, False),
        ({"client": ["0.0.0.0/0"]}, True),
        ({"clientname": ["*.Example.com"]}, True),
        ({"clientname": ["example.com"]}, False),
        ({"helo": ["*.EXAMPLE.com"]}, True),
        ({"helo": ["/^app[0-9]\\./"]}, True),
        ({"helo": ["app1"]}, False),
        ({"user": ["bob", "alice"]}, True),
        ({"user": ["Alice"]}, False),
        ({"authenticated": True}, True),
        ({"authenticated": False}, False),
        ({"tls": True}, True),
        ({"tls": False}, False),
        ({"tlsversion": "1.2"}, True),
        ({"tlsversion": "1.3"}, True),
        ({"tlsverified": True}, False),
        ({"tlsverified": False}, True),
        ({"sender": ["news@LISTS.sender.example"]}, True),
        ({"sender": ["News@lists.sender.example"]}, True),
        ({"sender": ["new@lists.sender.example"]}, False),
        ({"sender": [""]}, False),
        ({"senderdomain": ["lists.sender.example"]}, True),
        ({"senderdomain": ["sender.example"]}, False),
        ({"senderdomain": ["*.sender.example"]}, True),
        ({"senderdomain": ["*.lists.sender.example"]}, False),
        ({"senderdomain": ["*.ender.example"]}, False),
        ({"recipient": ["Ann@mail.example.net"]}, True),
        ({"recipient": ["ann@mail.example.net"]}, True),
        ({"recipient": ["an@mail.example.net"]}, False),
        ({"recipientdomain": ["MAIL.example.net"]}, True),
        ({"recipientdomain": ["*.example.net"]}, True),
        ({"recipientdomain": ["example.net"]}, False),
        ({"recipientdomain": ["example.org", "*.net"]}, True),
        ({"recipients": ">2"}, True),
        ({"recipients": ">=3"}, True),
        ({"recipients": "<3"}, False),
        ({"recipients": "=3"}, True),
        ({"size": ">1MiB"}, False),
        ({"size": ">=1MiB"}, True),
        ({"size": "<= 1MiB"}, True),
        ({"header": {"Subject": ["*LOTTERY"]}}, True),
        ({"header": {"subject": ["lottery"]}}, False),
        ({"header": {"Subject": ["/a lottery$/"]}}, True),
        ({"header": {"Subject": ["grüße*"]}}, True),
        ({"header": {"Subject": ["=?utf-8?*"]}}, True),
        ({"header": {"Subject": ["*body*"]}}, False),
        ({"header": {"X-Tenant": ["second"]}}, True),
        ({"header": {"X-Tenant": ["acme"], "X-None": ["*"]}}, False),
        ({"score": ">7"}, True),
        ({"score": "<=-1.5"}, False),
        ({"symbols": ["BAYES_*"]}, True),
        ({"symbols": ["BAYES"]}, False),
        ({"time": [{"days": ["sat"], "hours": "16:00-17:00"}]}, True),
        ({"time": [{"hours": "16:31-16:30"}]}, False),
        ({"time": [{"hours": "08:00-18:00", "zone": "America/New_York"}]}, True),
        ({"time": [{"hours": "16:00-17:00", "zone": "Europe/Berlin"}]}, False),
        ({"not": {"user": ["bob"]}}, True),
        ({"not": {"user": ["alice"]}}, False),
        ({"not": {"user": ["alice"], "sender": [""]}}, True),
        ({"any": [{"user": ["bob"]}, {"tls": True}]}, True),
        ({"any": [{"user": ["bob"]}, {"tls": False}]}, False),
        ({"all": [{"user": ["alice"]}, {"any": [{"tls": False}, {"not": {"sender": [""]}}]}]}, True),
        ({"all": [{"user": ["alice"]}, {"tls": False}]}, False),
        ({"client": ["192.0.2.0/24"], "user": ["alice"], "recipientdomain": ["*.example.net"]}, True),
        ({"client": ["192.0.2.0/24"], "user": ["bob"], "recipientdomain": ["*.example.net"]}, False),
    ],
)
def test_each_condition_matches_its_facts_only(condition: dict[str, Any], *, expected: bool) -> None:
    assert matches(condition) is expected


@pytest.mark.parametrize(
    "condition",
    [
        {"clientname": ["*.com"]},
        {"helo": ["*"]},
        {"user": ["alice"]},
        {"authenticated": True},
        {"tlsversion": "1.2"},
        {"size": "<1MiB"},
        {"header": {"Subject": ["*"]}},
        {"score": "<1000"},
        {"symbols": ["*"]},
        {"sender": ["news@lists.sender.example"]},
        {"senderdomain": ["*.sender.example"]},
    ],
)
def test_a_condition_on_an_unknown_fact_does_not_match(condition: dict[str, Any]) -> None:
    unknown = Facts(now=FACTS.now, client="unix:", listener="default", recipient=FACTS.recipient)
    made = outcome({"if": condition, "then": {"hold": "x"}}, facts=unknown, known=Known(check="skipped"))
    assert made.changes.hold is None


def test_the_null_sender_is_the_empty_text() -> None:
    assert matches({"sender": [""]}, replace(FACTS, sender=None))


@pytest.mark.parametrize("client", ["::ffff:192.0.2.7", "192.0.2.7"])
def test_an_ipv4_client_matches_on_an_ipv6_socket(client: str) -> None:
    assert matches({"client": ["192.0.2.0/24"]}, replace(FACTS, client=client))
    assert not matches({"client": ["::/0"]}, replace(FACTS, client=client))


@pytest.mark.parametrize("client", ["", "unix:", "192.0.2"])
def test_an_invalid_client_address_is_in_no_network(client: str) -> None:
    assert not matches({"client": ["0.0.0.0/0", "::/0"]}, replace(FACTS, client=client))


@pytest.mark.parametrize("written", ["münchen.example", "MÜNCHEN.example", "xn--mnchen-3ya.example"])
@pytest.mark.parametrize("asked", ["münchen.example", "xn--mnchen-3ya.example"])
def test_a_u_label_and_its_a_label_are_one_domain(written: str, asked: str) -> None:
    assert matches({"recipientdomain": [written]}, replace(FACTS, recipient=parse(f"x@{asked}")))
    assert matches({"recipientdomain": [f"*.{written}"]}, replace(FACTS, recipient=parse(f"x@mail.{asked}")))


@pytest.mark.parametrize(
    ("day", "clock", "inside"),
    [(20, "21:59", False), (20, "22:00", True), (21, "05:59", True), (21, "06:00", False), (21, "22:30", False)],
)
def test_hours_past_midnight_belong_to_the_day_they_begin_on(day: int, clock: str, *, inside: bool) -> None:
    now = datetime.fromisoformat(f"2026-11-{day}T{clock}:00+00:00")
    condition = {"time": [{"days": ["fri"], "hours": "22:00-06:00"}]}
    assert matches(condition, replace(FACTS, now=now)) is inside


@pytest.mark.parametrize(
    "written",
    ["ceo@example.com", "CEO@EXAMPLE.com", '"ceo"@example.com', r'"c\eo"@example.com', r'"\C\e\o"@example.com'],
)
def test_another_spelling_is_the_same_mailbox(written: str) -> None:
    localpart, _, domain = written.rpartition("@")
    facts = replace(FACTS, sender=Address(localpart, domain), recipient=Address(localpart, domain))
    for condition in ({"sender": ["Ceo@example.com"]}, {"recipient": ["ceo@Example.com"]}):
        assert matches(condition, facts)
    for condition in ({"sender": ["ce@example.com"]}, {"recipient": ["ceo@example.org"]}):
        assert not matches(condition, facts)


@pytest.mark.parametrize(
    "domain",
    [
        "blocked.example",
        "BLOCKED.example",
        "\uff42locked.example",
        "blocked\u3002example",
        "blocked\uff0eexample",
    ],
)
@pytest.mark.parametrize("label", ["", "a.", "ü."])
def test_another_spelling_is_the_same_domain(label: str, domain: str) -> None:
    address = parse(f"x@{label}{domain}")
    facts = replace(FACTS, sender=address, recipient=address)
    blocked = ["blocked.example", "*.blocked.example"]
    assert matches({"senderdomain": blocked}, facts)
    assert matches({"recipientdomain": blocked}, facts)
    assert not matches({"recipientdomain": ["locked.example", "*.locked.example"]}, facts)


@pytest.mark.parametrize("fields", [1, 100, 999])
def test_a_rule_sees_the_whole_allowed_header(fields: int) -> None:
    padding = b"X-Pad: " + b"a" * (1_000_000 // fields) + b"\r\n"
    facts = replace(FACTS, headers=HeaderFields(padding * fields + b"X-Bad: yes\r\n\r\nX-Body: yes\r\n"))
    assert matches({"header": {"X-Bad": ["yes"]}}, facts)
    assert not matches({"header": {"X-Body": ["yes"]}}, facts)


@pytest.mark.parametrize("helo", ["bad.example", "bad.example.", "BAD.example.", "b\u00e4d.example."])
@pytest.mark.parametrize("entry", ["bad.example", "bad.example.", "*.example"])
@pytest.mark.parametrize("fact", ["helo", "clientname"])
def test_a_trailing_dot_does_not_change_a_name(fact: str, entry: str, helo: str, tmp_path: Path) -> None:
    """The dot says only that the name is complete."""
    label = "bad" if helo.isascii() else "xn--bd-via"
    name, other = dict[str, Any]({fact: helo}), dict[str, Any]({fact: f"not{helo}.other"})
    facts = replace(FACTS, **name)
    file = tmp_path / "names"
    file.write_text(entry.replace("bad", label))
    lists = {"lists": [{"id": "names", "file": str(file)}]}
    rule = {"if": {"in": {"list": "names", "of": fact}}, "then": {"hold": "x"}}
    assert outcome(rule, facts=facts, policy=lists).changes.hold == "x"
    assert outcome(rule, facts=replace(facts, **other), policy=lists).changes.hold is None
    if fact == "helo" and helo.isascii() and not entry.endswith("."):
        assert matches({"helo": [entry]}, facts)
    assert COUNTED[fact](facts) == f"{label}.example"


def test_a_pattern_can_match_the_trailing_dot() -> None:
    assert matches({"helo": [r"/\.$/"]}, replace(FACTS, helo="app1.example.com."))
    assert not matches({"helo": [r"/\.$/"]})
