"""test_policy — the first rule that matches decides, and only for what it names

Owns: examples for smtpd/policy.py, each condition and each action by itself.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from shared.message import Address
from shared.partition import partition_id
from shared.policy_config import Policy
from shared.states import Status
from smtpd.policy import Origin, decide, in_networks, may_relay

SENDER = Address("news", "lists.sender.example")
RECIPIENT = Address("Ann", "mail.example.net")
ORIGIN = Origin("192.0.2.7", "alice", SENDER)
HELD = {"hold": "review"}
NETWORKS = [ip_network("192.0.2.0/24"), ip_network("2001:db8::/32")]


def rules(*written: dict[str, Any]) -> list[Any]:
    """Rules as in smtpd.yaml; ids are given."""
    numbered = [{"id": f"rule-{number}", **rule} for number, rule in enumerate(written)]
    return Policy.model_validate({"rules": numbered}).rules


def matches(condition: dict[str, Any], origin: Origin = ORIGIN, recipient: Address = RECIPIENT) -> bool:
    return decide(origin, recipient, rules({"if": condition, "then": HELD}), 6).status is Status.HOLD


def test_without_a_rule_the_domains_partition_and_the_default_transport() -> None:
    made = decide(ORIGIN, RECIPIENT, [], 64)
    assert made.address == RECIPIENT
    assert (made.partid, made.status, made.transportid) == (partition_id("mail.example.net", 64), "DELIVER", "default")
    assert made.metadata == {}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({}, True),
        ({"client": ["192.0.2.0/24"]}, True),
        ({"client": ["198.51.100.0/24", "192.0.2.7/32"]}, True),
        ({"client": ["198.51.100.0/24"]}, False),
        ({"user": ["bob", "alice"]}, True),
        ({"user": ["Alice"]}, False),
        ({"sender": ["news@LISTS.sender.example"]}, True),
        ({"sender": ["News@lists.sender.example"]}, False),
        ({"sender": [""]}, False),
        ({"senderdomain": ["lists.sender.example"]}, True),
        ({"senderdomain": ["sender.example"]}, False),
        ({"senderdomain": ["*.sender.example"]}, True),
        ({"senderdomain": ["*.lists.sender.example"]}, False),
        ({"senderdomain": ["*.ender.example"]}, False),
        ({"recipient": ["Ann@mail.example.net"]}, True),
        ({"recipient": ["ann@mail.example.net"]}, False),
        ({"recipientdomain": ["MAIL.example.net"]}, True),
        ({"recipientdomain": ["*.example.net"]}, True),
        ({"recipientdomain": ["example.net"]}, False),
        ({"recipientdomain": ["example.org", "*.net"]}, True),
        ({"client": ["192.0.2.0/24"], "user": ["alice"], "recipientdomain": ["*.example.net"]}, True),
        ({"client": ["192.0.2.0/24"], "user": ["bob"], "recipientdomain": ["*.example.net"]}, False),
    ],
)
def test_each_condition(condition: dict[str, Any], *, expected: bool) -> None:
    assert matches(condition) is expected


def test_the_null_sender_is_the_empty_text_and_has_no_domain() -> None:
    null = Origin("192.0.2.7", None, None)
    assert matches({"sender": [""]}, null)
    assert not matches({"sender": ["news@lists.sender.example"]}, null)
    assert not matches({"senderdomain": ["*.sender.example"]}, null)


def test_nobody_authenticated_is_no_user() -> None:
    assert not matches({"user": ["alice"]}, Origin("192.0.2.7", None, SENDER))


@pytest.mark.parametrize("written", ["münchen.example", "MÜNCHEN.example", "xn--mnchen-3ya.example"])
@pytest.mark.parametrize("asked", ["münchen.example", "xn--mnchen-3ya.example"])
def test_a_u_label_and_its_a_label_are_one_domain(written: str, asked: str) -> None:
    assert matches({"recipientdomain": [written]}, recipient=Address("x", asked))
    assert matches({"recipientdomain": [f"*.{written}"]}, recipient=Address("x", f"mail.{asked}"))


def test_the_first_match_decides_and_later_rules_add_nothing() -> None:
    written = rules(
        {"if": {"user": ["bob"]}, "then": {"hold": "never"}},
        {"if": {"client": ["192.0.2.0/24"]}, "then": {"transport": "relay"}},
        {"if": {}, "then": {"hold": "all", "partition": "9", "metadata": {"late": "yes"}}},
    )
    made = decide(ORIGIN, RECIPIENT, written, 6)
    assert (made.status, made.transportid, made.metadata) == ("DELIVER", "relay", {"_policyrule": "rule-1"})
    assert made.partid == partition_id("mail.example.net", 6)


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ({"hold": "review"}, {"status": "HOLD", "metadata": {"_policyrule": "rule-0", "_quarantineid": "review"}}),
        ({"metadata": {"tenant": "acme"}}, {"metadata": {"_policyrule": "rule-0", "tenant": "acme"}}),
        ({"partition": "tenant-7"}, {"partid": "tenant-7", "metadata": {"_policyrule": "rule-0"}}),
        ({"transport": "relay"}, {"transportid": "relay", "metadata": {"_policyrule": "rule-0"}}),
        (
            {"hold": "h", "metadata": {"a": "b"}, "partition": "p", "transport": "t"},
            {
                "status": "HOLD",
                "partid": "p",
                "transportid": "t",
                "metadata": {"a": "b", "_quarantineid": "h", "_policyrule": "rule-0"},
            },
        ),
    ],
)
def test_each_action(action: dict[str, Any], expected: dict[str, Any]) -> None:
    made = decide(ORIGIN, RECIPIENT, rules({"then": action}), 6)
    defaults = {"status": "DELIVER", "partid": partition_id("mail.example.net", 6), "transportid": "default"}
    wanted = {**defaults, **expected}
    assert {name: getattr(made, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("client", "inside"),
    [
        ("192.0.2.255", True),
        ("192.0.3.0", False),
        ("2001:db8:ffff::1", True),
        ("2001:db9::1", False),
        ("::ffff:192.0.2.1", True),  # how an IPv4 client looks on an IPv6 socket
        ("::ffff:192.0.3.1", False),
        ("2001:db8::1%eth0", True),
        ("", False),
        ("unix:", False),
        ("192.0.2", False),
    ],
)
def test_networks(client: str, *, inside: bool) -> None:
    assert in_networks(client, NETWORKS) is inside


def test_only_users_and_listed_networks_may_relay() -> None:
    assert may_relay(Origin("192.0.2.1", None, SENDER), NETWORKS)
    assert may_relay(Origin("203.0.113.1", "alice", SENDER), NETWORKS)
    assert not may_relay(Origin("203.0.113.1", None, SENDER), NETWORKS)
    assert not may_relay(Origin("192.0.2.1", None, SENDER), [])
