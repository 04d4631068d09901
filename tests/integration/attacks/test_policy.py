"""test_policy — another spelling or another address of the same host does not bypass a rule

Owns: names in a greeting in lists and counts, the addresses of one IPv6 host, and bans beside a flood of other counts.
See: docs/reference/policy.md, `in` and `rate`; smtpd/envelope/places.py; smtpd/rates/server.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from smtpd import replies
from smtpd.rates.counters import REMEMBERED, Limit
from smtpd.rates.server import LocalRateCounts, RateServer
from tests.fixtures.daemons.serving import Dialogue, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

PROXY = {"listeners": [{"address": "127.0.0.1", "port": 0, "xclient": {"networks": ["127.0.0.0/8"]}}]}
RELAY = {"networks": ["127.0.0.0/8", "2001:db8::/32", "192.0.2.0/24"]}


def listed(path: Path, of: str, phase: str) -> dict[str, Any]:
    path.write_text("bad.example\n*.worse.example\n")
    rule = {"id": "out", "phase": phase, "if": {"in": {"list": "bad", "of": of}}, "then": {"reject": "550 5.7.1 No"}}
    return {"lists": [{"id": "bad", "file": str(path)}], "rules": [rule]}


@pytest.mark.parametrize("name", [b"bad.example", b"BAD.example", b"Bad.Example", b"x.WORSE.example"])
async def test_an_ehlo_name_matches_a_list_in_any_case(factory: Factory, tmp_path: Path, name: bytes) -> None:
    policy = listed(tmp_path / "bad", "helo", "helo")
    async with serving(factory.uri, policy=policy) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ask(b"EHLO " + name)) == "550 5.7.1 No"
        assert (await client.ask(b"EHLO good.example")).startswith("250")


async def test_a_reverse_name_matches_a_list_in_any_case(factory: Factory, tmp_path: Path) -> None:
    policy = listed(tmp_path / "bad", "clientname", "mailfrom")
    async with serving(factory.uri, server=PROXY, policy=policy) as port, Dialogue(port) as client:
        assert (await client.ask(b"XCLIENT NAME=BAD.Example HELO=c.example")).startswith("220")
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")) == "550 5.7.1 No"


def counted(subject: str) -> dict[str, Any]:
    condition = {"rate": {"key": [subject], "over": "2/1h"}}
    return {"rules": [{"id": "often", "phase": "mailfrom", "if": condition, "then": {"defer": "450 4.7.1 Later"}}]}


@pytest.mark.parametrize(
    ("addresses", "allowed"),
    [
        ([f"2001:db8::{n:x}" for n in range(1, 6)], 2),
        ([f"2001:db8:0:{n:x}::1" for n in range(1, 6)], 5),
        ([f"192.0.2.{n}" for n in range(1, 6)], 5),
        (["192.0.2.1", "::ffff:192.0.2.1", "::ffff:c000:201"], 2),
    ],
)
async def test_all_addresses_of_a_host_share_one_count(factory: Factory, addresses: list[str], allowed: int) -> None:
    replies = []
    async with serving(factory.uri, server=PROXY, relay=RELAY, policy=counted("client")) as port:
        for address in addresses:
            async with Dialogue(port) as client:
                assert (await client.ask(f"XCLIENT ADDR={address} HELO=c.example".encode())).startswith("220")
                replies.append((await client.ask(b"MAIL FROM:<a@sender.example>"))[:3])
    assert replies == ["250"] * allowed + ["450"] * (len(addresses) - allowed)


async def test_spellings_of_an_ehlo_name_share_one_count(factory: Factory) -> None:
    async with serving(factory.uri, policy=counted("helo")) as port:
        replies = []
        for name in (b"c.example", b"C.example", b"c.EXAMPLE"):
            async with Dialogue(port, ehlo=b"EHLO " + name) as client:
                replies.append((await client.ask(b"MAIL FROM:<a@sender.example>"))[:3])
    assert replies == ["250", "250", "450"]


@pytest.mark.parametrize("flood", ["own/policy/often/{}", "message/address/{}", "own/auth/failures/name/{}"])
async def test_many_other_keys_do_not_displace_a_ban(flood: str) -> None:
    """A ban stays while any number of addresses, names and senders are counted."""
    counts = LocalRateCounts(RateServer())
    ban = Limit("own/auth/ban/address/192.0.2.1/32", 1, 600.0)
    assert await counts.hit([ban], 1) == 0.0
    for number in range(REMEMBERED + 1):
        await counts.hit([Limit(flood.format(number), 10, 600.0)], 1)
    assert await counts.hit([ban], 0) > 0


@pytest.mark.parametrize(
    "written", [b"gone@example.com", b'"gone"@example.com', rb'"g\one"@EXAMPLE.com', b"Gone@example.com"]
)
async def test_a_quoted_local_part_does_not_bypass_a_suppression(factory: Factory, written: bytes) -> None:
    """RFC 5321 section 4.1.2: the quoted form is the same mailbox."""
    factory.sql(
        "INSERT INTO pillarbox.suppressions (target, reason, source) VALUES ('gone@example.com', 'x', 'operator')"
    )
    async with serving(factory.uri, suppression={"action": "reject"}) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@sender.example>")).startswith("250")
        assert await client.ask(b"RCPT TO:<" + written + b">") == replies.R550_SUPPRESSED
        assert (await client.ask(b'RCPT TO:<"gone too"@example.com>')).startswith("250")
