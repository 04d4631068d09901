"""test_recipient — the queue row of a recipient, and the clients that may relay

Owns: examples for smtpd/policy/recipient.py.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from ipaddress import ip_network

import pytest

from shared.mail.message import Address
from shared.mail.partition import partition_id
from shared.mail.states import Status
from smtpd.envelope.client import Client, User
from smtpd.policy.decision import UNCHANGED, Changes
from smtpd.policy.engine import Facts
from smtpd.policy.headers import HeaderFields
from smtpd.policy.recipient import in_networks, may_relay, row

SENDER = Address("news", "lists.sender.example")
FACTS = Facts(
    now=datetime(2026, 11, 21, tzinfo=UTC),
    client="192.0.2.7",
    listener="default",
    user="alice",
    sender=SENDER,
    recipient=Address("Ann", "Mail.example.net"),
    headers=HeaderFields(b"X-Tenant: acme\r\n\r\n"),
)
NETWORKS = [ip_network("192.0.2.0/24"), ip_network("2001:db8::/32")]


def test_a_default_row_has_the_domains_partition_and_the_default_transport() -> None:
    made = row(FACTS, UNCHANGED, None, "recipientdomain", 64)
    assert made.address == FACTS.recipient
    assert (made.partid, made.status, made.transportid) == (partition_id("mail.example.net", 64), "DELIVER", "default")
    assert (made.metadata, made.priority) == ({}, None)


def test_changes_of_rules_become_columns_and_reserved_metadata() -> None:
    changes = Changes(
        hold="q", holdreason="why", metadata={"a": "b"}, partition="tenant-7", transport="relay", priority=0,
        rules=("one", "two"),
    )  # fmt: skip
    made = row(FACTS, changes, None, "recipientdomain", 6)
    assert (made.partid, made.status, made.transportid, made.priority) == ("tenant-7", Status.HOLD, "relay", 0)
    assert made.metadata == {"a": "b", "_quarantineid": "q", "_holdreason": "why", "_policyrule": "one,two"}


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        ("recipientdomain", "mail.example.net"),
        ("recipient", "Ann@mail.example.net"),
        ("sender", "news@lists.sender.example"),
        ("senderdomain", "lists.sender.example"),
        ("user", "alice"),
        ("header:x-tenant", "acme"),
        ("metadata:tenant", "emca"),
        ("header:X-None", "mail.example.net"),
        ("metadata:none", "mail.example.net"),
    ],
)
def test_each_partition_key_is_hashed(key: str, hashed: str) -> None:
    changes = Changes(metadata={"tenant": "emca"})
    assert row(FACTS, changes, None, key, 999_983).partid == partition_id(hashed, 999_983)
    rule = replace(changes, partitionkey=key)
    assert row(FACTS, rule, None, "recipientdomain", 999_983).partid == partition_id(hashed, 999_983)


@pytest.mark.parametrize("key", ["user", "sender", "senderdomain"])
def test_a_key_that_is_empty_falls_back_to_the_recipients_domain(key: str) -> None:
    bare = replace(FACTS, user=None, sender=None)
    assert row(bare, UNCHANGED, None, key, 999_983).partid == partition_id("mail.example.net", 999_983)


def test_settings_of_a_user_apply_where_rules_set_nothing() -> None:
    user = User("alice", partition="vip", transport="fast", hold="watch")
    made = row(FACTS, UNCHANGED, user, "recipientdomain", 6)
    assert (made.partid, made.transportid, made.status) == ("vip", "fast", Status.HOLD)
    assert made.metadata["_quarantineid"] == "watch"
    ruled = row(FACTS, Changes(hold="h", partitionkey="user", transport="slow"), user, "recipientdomain", 6)
    assert (ruled.partid, ruled.transportid) == (partition_id("alice", 6), "slow")
    assert ruled.metadata["_quarantineid"] == "h"


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
def test_an_address_is_in_its_networks(client: str, *, inside: bool) -> None:
    assert in_networks(client, NETWORKS) is inside


def test_only_users_and_listed_networks_may_relay() -> None:
    inside, outside = Client("192.0.2.1", 1, "default"), Client("203.0.113.1", 1, "default")
    assert may_relay(inside, NETWORKS)
    assert not may_relay(inside, [])
    assert not may_relay(outside, NETWORKS)
    assert may_relay(replace(outside, user=User("alice")), NETWORKS)
