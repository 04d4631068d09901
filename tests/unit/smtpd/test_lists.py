"""test_lists — membership by file and by query, with answers cached for the configured time

Owns: examples for smtpd/policy/lists.py without a database.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from shared.config.smtpd.policy import ListSource
from smtpd.policy.facts import address_bits
from smtpd.policy.lists import Domains, Entries, ListUnavailable, Networks, QueryList
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_network_list_matches_prefixes_of_any_length() -> None:
    networks = Networks(["192.0.2.0/24", "198.51.100.7/32", "2001:db8::/32", "10.0.0.0/8"])
    inside = ["192.0.2.1", "::ffff:192.0.2.1", "198.51.100.7", "2001:db8:1::", "10.255.255.255", "2001:db8::1%eth0"]
    assert all(address_bits(client) in networks for client in inside)
    outside = ["192.0.3.1", "198.51.100.8", "2001:db9::", "11.0.0.0", "", "unix:"]
    assert not any(address_bits(client) in networks for client in outside)
    assert address_bits("192.0.2.1") not in Networks([])
    assert address_bits("192.0.2.1") in Networks(["0.0.0.0/0"])


def test_a_domain_list_matches_domains_and_subdomains() -> None:
    domains = Domains(["Example.com", "*.example.net", "*.münchen.example"])
    assert all(domain in domains for domain in ["example.com", "a.example.net", "a.b.example.net"])
    assert "mail.xn--mnchen-3ya.example" in domains
    assert not any(domain in domains for domain in ["a.example.com", "example.net", "xexample.net", "", "net"])


def test_each_entry_of_a_file_matches_by_its_kind(tmp_path: Path) -> None:
    file = tmp_path / "list"
    file.write_text(
        "\ufeffbob\n# comment\n192.0.2.0/24\n198.51.100.7  # one\n*.example.com\nAnn@Example.com\nalice\n\n"
    )
    entries = Entries.read(file)
    assert entries.has("client", "192.0.2.9")
    assert entries.has("client", "198.51.100.7")
    assert entries.has("senderdomain", "a.example.com")
    assert not entries.has("recipientdomain", "example.com")
    assert entries.has("sender", "Ann@example.com")
    assert entries.has("sender", '"ann"@EXAMPLE.com')
    assert not entries.has("sender", "anne@example.com")
    assert not entries.has("user", "ann@example.com")
    assert entries.has("user", "alice")
    assert entries.has("user", "bob")
    assert not entries.has("user", "Alice")
    assert not entries.has("user", "# comment")


class Clock:
    """A clock that moves only when it is set, and a database that counts queries."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fails = False

    def __call__(self) -> float:
        """The time."""
        return self.now

    async def ask(self, _query: str, value: str, _seconds: float, /) -> bool:
        """Everything that begins with an x is in the list."""
        self.asked.append(value)
        await self.open.wait()
        if self.fails:
            raise ListUnavailable("away")
        return value.startswith("x")


def made(clock: Clock) -> QueryList:
    source = ListSource.model_validate({"id": "a", "query": "SELECT 1 WHERE %(value)s = ''", "keep": "60s"})
    return QueryList(source, clock=clock)


async def test_answers_are_cached_for_the_configured_time() -> None:
    clock = Clock()
    asked = made(clock)
    assert [await asked.has(value, clock.ask) for value in ("x1", "y", "x1", "y")] == [True, False, True, False]
    clock.now = 59.9
    assert await asked.has("x1", clock.ask)
    assert clock.asked == ["x1", "y"]
    clock.now = 60.0
    assert await asked.has("x1", clock.ask)
    assert clock.asked == ["x1", "y", "x1"]


async def test_concurrent_lookups_share_one_query_and_survive_a_cancelled_one() -> None:
    clock = Clock()
    clock.open.clear()
    asked = made(clock)
    waiting = [asyncio.create_task(asked.has("x", clock.ask)) for _ in range(5)]
    await until(lambda: clock.asked == ["x"], "the question")
    waiting[0].cancel()
    clock.open.set()
    assert await asyncio.gather(*waiting[1:]) == [True] * 4
    assert clock.asked == ["x"]


async def test_a_failed_lookup_is_not_cached() -> None:
    clock = Clock()
    asked = made(clock)
    clock.fails = True
    with pytest.raises(ListUnavailable):
        await asked.has("x", clock.ask)
    clock.fails = False
    assert await asked.has("x", clock.ask)
