"""test_name_servers — name servers that do not answer, that answer again, and that the system has changed

Owns: proofs about queued/routing/name_servers.py, by a resolver that asks two name servers.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from time import monotonic
from typing import TYPE_CHECKING

import dns.resolver
import pytest

from queued.routing import name_servers
from queued.routing import resolver as asking
from queued.routing.name_servers import PER_SERVER, NameServers
from queued.routing.resolver import Resolver
from queued.waiting.deferral import ParkedError
from shared.config.queued.routing import Dns
from tests.fixtures.peers.fake_dns import FakeDns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RECORDS = {(f"d{n}.test", "MX"): ["10 mx.example.test."] for n in range(30)}
_BACKOFF = 0.1  # seconds until dnspython asks the first name server again


class Sometimes(FakeDns):
    """Loses this many questions, and answers the others."""

    lost = 0

    def answer(self, wire: bytes, *, tcp: bool = False) -> bytes | None:
        answered = super().answer(wire, tcp=tcp)
        self.lost -= 1
        return None if self.lost >= 0 else answered


@asynccontextmanager
async def two(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Resolver, Sometimes, Sometimes]]:
    """A resolver that waits for as long as it takes, and its name servers."""
    monkeypatch.setattr(asking, "_PROMPT", 10.0)
    async with Sometimes(RECORDS) as first, Sometimes(RECORDS) as second:
        resolver = Resolver(Dns.model_validate({"servers": [first.where, second.where]}))
        resolver.patience = None
        try:
            yield resolver, first, second
        finally:
            await resolver.close()


async def test_a_dead_name_server_is_asked_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "_AGAIN", 3600.0)
    async with two(monkeypatch) as (resolver, first, second):
        first.lost = 1000
        for name, _ in RECORDS:
            assert (await resolver.mx(name)).state == "found"
        assert (len(first.asked), len(second.asked)) == (1, len(RECORDS))


async def test_a_name_server_that_answers_again_is_the_first_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "_AGAIN", 0.0)
    async with two(monkeypatch) as (resolver, first, second):
        first.lost = 2
        for name in ("d1.test", "d2.test", "d3.test", "d4.test"):
            assert (await resolver.mx(name)).state == "found"
        assert [name for name, _ in first.asked] == ["d1.test", "d2.test", "d3.test", "d4.test"]
        assert [name for name, _ in second.asked] == ["d1.test", "d2.test"]


async def test_two_that_both_lose_questions_are_both_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with two(monkeypatch) as (resolver, first, second):
        first.lost = second.lost = 1
        assert (await resolver.mx("d1.test")).state == "found"
        assert (len(first.asked), len(second.asked)) == (2, 1)


async def test_a_lost_datagram_is_sent_again_before_the_caller_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PER_SERVER + _BACKOFF < asking._PROMPT < asking._PATIENCE
    monkeypatch.setattr(asking, "_PROMPT", 10.0)
    async with Sometimes(RECORDS) as server:
        resolver = Resolver(Dns.model_validate({"servers": [server.where], "timeout": "1900ms"}))
        resolver.patience, server.lost = None, 1
        assert (await resolver.mx("d1.test")).state == "found"
        assert len(server.asked) == 2
        await resolver.close()


async def test_a_name_server_whose_answers_take_longer_than_the_first_try_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with two(monkeypatch) as (resolver, first, second):
        first.late = second.late = PER_SERVER * 1.4
        assert (await resolver.mx("d1.test")).state == "found"
        assert (len(first.asked), len(second.asked)) == (2, 1)


async def test_silent_name_servers_are_not_asked_twice_by_a_question_that_has_a_place_only_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prompt = asking._PROMPT
    async with two(monkeypatch) as (resolver, first, second):
        monkeypatch.setattr(asking, "_PROMPT", prompt)
        resolver.patience = asking._PATIENCE
        first.lost = second.lost = 1000
        for silent in (first, second):
            await asyncio.gather(*(_parked(resolver, f"{n}.{silent.port}.test") for n in range(15)))
        assert all(server.unanswered >= name_servers._SILENT for server in resolver._servers.in_order())
        first.asked.clear()
        second.asked.clear()
        await _parked(resolver, "another.test")
        assert [name for name, _ in first.asked + second.asked].count("another.test") == 1


async def _parked(resolver: Resolver, name: str) -> None:
    with pytest.raises(ParkedError):
        await resolver.mx(name)


def test_the_list_of_the_system_is_read_again_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "resolv.conf"
    monkeypatch.setattr(name_servers, "_SYSTEM", file)
    servers = NameServers([])
    with pytest.raises(dns.resolver.NoResolverConfiguration):
        servers.in_order()

    def read(text: str) -> list[str]:
        replaced = tmp_path / "new"
        replaced.write_text(text)
        replaced.replace(file)
        return [str(server.place) for server in servers.in_order()]

    assert read("nameserver 192.0.2.1\nnameserver 2001:db8::1\n") == ["192.0.2.1:53", "[2001:db8::1]:53"]
    [kept, _] = servers.in_order()
    assert servers.in_order()[0] is kept
    assert read("nameserver 192.0.2.2\nnameserver 192.0.2.1\n") == ["192.0.2.2:53", "192.0.2.1:53"]
    assert servers.in_order()[1] is kept, "what is known of it stays"
    for broken in ("", "search example.test\n", "nameserver nonsense\n"):
        assert read(broken) == ["192.0.2.2:53", "192.0.2.1:53"]
    file.unlink()
    assert len(servers.in_order()) == 2
    assert read("options rotate\nnameserver 192.0.2.3\n") == ["192.0.2.3:53"]


def test_rotation_asks_each_first_but_those_that_do_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("options rotate\n" + "".join(f"nameserver 192.0.2.{n}\n" for n in range(3)))
    monkeypatch.setattr(name_servers, "_SYSTEM", file)
    monkeypatch.setattr(name_servers, "_AGAIN", 3600.0)
    servers = NameServers([])
    assert {servers.in_order()[0].place.host for _ in range(200)} == {"192.0.2.0", "192.0.2.1", "192.0.2.2"}
    dead = servers.in_order()[0]
    dead.unanswered, dead.asked_first = 1, monotonic()
    assert {servers.in_order()[2] for _ in range(200)} == {dead}
