"""test_resolver — DNS answers and failures over real sockets, and how long they are cached"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from ipaddress import ip_address
from time import monotonic, process_time
from typing import TYPE_CHECKING

import pytest

from queued.routing import resolver as under_test
from queued.routing import unanswered
from queued.routing.resolver import Resolver, ResolverClosedError
from queued.waiting.deferral import SOONEST, ParkedError
from shared.config.queued.routing import Dns
from tests.fixtures.heard import until
from tests.fixtures.peers.fake_dns import GARBAGE, REFUSED, SERVFAIL, SILENT, TRUNCATED, FakeDns
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from queued.routing.dns_answer import Answer

RECORDS: dict[tuple[str, str], Sequence[str]] = {
    ("example.test", "MX"): ["10 mx1.example.test.", "20 mx2.example.test."],
    ("mx1.example.test", "A"): ["192.0.2.1", "192.0.2.2"],
    ("mx1.example.test", "AAAA"): ["2001:db8::1"],
    ("half.test", "A"): ["192.0.2.3"],
    ("half.test", "AAAA"): [SERVFAIL],
    ("unsure.test", "A"): [],
    ("unsure.test", "AAAA"): [SERVFAIL],
    ("unsure.test", "TXT"): ['"there"'],
    ("texts.test", "TXT"): [
        '"v=STSv1; id=1;"',
        f'"v=STSv1; id=2; " {" ".join([chr(34) + "x" * 255 + chr(34)] * 3)}',
        '"v=spf1 -all"',
    ],
    ("null.test", "MX"): ["0 ."],
    ("alias.test", "CNAME"): ["mx1.example.test."],
    ("long.test", "MX"): [TRUNCATED, *(f"{n} mx{n}.long.test." for n in range(40))],
    ("servfail.test", "MX"): [SERVFAIL],
    ("refused.test", "MX"): [REFUSED],
    ("garbage.test", "MX"): [GARBAGE],
    ("silent.test", "MX"): [SILENT],
    ("xn--bcher-kva.test", "MX"): ["5 mx.xn--bcher-kva.test."],
}


@asynccontextmanager
async def resolving(*, lives: int = 60, **settings: object) -> AsyncIterator[tuple[Resolver, FakeDns]]:
    async with FakeDns(RECORDS, ttl=lives) as server:
        resolver = Resolver(Dns.model_validate({"servers": [server.where], **settings}))
        try:
            yield resolver, server
        finally:
            await resolver.close()


async def test_mail_exchangers_and_addresses_are_resolved() -> None:
    async with resolving() as (resolver, _):
        answer = await resolver.mx("Example.TEST")
        assert sorted(answer.records) == [(10, "mx1.example.test"), (20, "mx2.example.test")]
        addresses = await resolver.addresses("mx1.example.test")
        assert {str(a) for a in addresses.records} == {"192.0.2.1", "192.0.2.2", "2001:db8::1"}
        assert (await resolver.mx("bücher.test")).records == ((5, "mx.xn--bcher-kva.test"),)
        assert (await resolver.mx("null.test")).records == ((0, "."),)


async def test_an_alias_is_followed() -> None:
    async with resolving() as (resolver, _):
        alias, real = await resolver.addresses("alias.test"), await resolver.addresses("mx1.example.test")
        assert set(alias.records) == set(real.records)
        assert (await resolver.mx("alias.test")).state == "nothing"


async def test_found_nothing_and_unknown_are_distinguished() -> None:
    async with resolving() as (resolver, _):
        assert (await resolver.mx("half.test")).state == "nothing"
        assert (await resolver.mx("nowhere.test")).state == "unknown"
        assert (await resolver.addresses("nowhere.test")).state == "unknown"
        assert (await resolver.addresses("null.test")).state == "nothing"


async def test_one_address_family_is_enough_and_a_failed_one_leaves_none_unproven() -> None:
    async with resolving() as (resolver, _):
        assert (await resolver.addresses("half.test")).records == (ip_address("192.0.2.3"),)
        assert (await resolver.addresses("unsure.test")).state == "failed"


@pytest.mark.parametrize("name", ["servfail.test", "refused.test", "garbage.test", "silent.test"])
async def test_a_failure_is_cached_briefly(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(under_test, "monotonic", lambda: now)
    async with resolving(timeout="1s") as (resolver, server):
        answer = await resolver.mx(name)
        assert (answer.state, answer.records) == ("failed", ())
        assert answer.text
        server.records[name, "MX"] = ["1 mx.test."]
        asked = len(server.asked)
        assert (await resolver.mx(name)).state == "failed"
        assert len(server.asked) == asked, "RFC 9520 section 3.2: a failure is kept for a second at least"
        now += 1.1
        assert (await resolver.mx(name)).records == ((1, "mx.test"),)


async def test_an_unreachable_name_server_is_a_failure() -> None:
    resolver = Resolver(Dns.model_validate({"servers": [f"127.0.0.1:{free_port()}"], "timeout": "300ms"}))
    assert (await resolver.mx("example.test")).state == "failed"


async def test_a_long_answer_is_fetched_by_tcp() -> None:
    async with resolving() as (resolver, server):
        assert len((await resolver.mx("long.test")).records) == 40
        assert server.by_tcp == 1


async def test_only_the_needed_part_of_txt_records_is_cached() -> None:
    async with resolving() as (resolver, _):
        short, long = sorted((await resolver.txt("texts.test")).records)  # their order is by chance
        assert short == "v=STSv1; id=1;"
        assert (long[:16], len(long)) == ("v=STSv1; id=2; x", 512)
        assert (await resolver.txt("unsure.test")).records == ()


async def test_positive_and_negative_answers_are_cached_for_their_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(under_test, "monotonic", lambda: now)
    async with resolving(lives=60) as (resolver, server):
        for _ in range(3):
            await resolver.mx("example.test")
            await resolver.mx("nowhere.test")
        assert len(server.asked) == 2
        now += 59
        await resolver.mx("example.test")
        assert len(server.asked) == 2
        now += 2
        await resolver.mx("example.test")
        await resolver.mx("nowhere.test")
        assert len(server.asked) == 4


@pytest.mark.parametrize(("own", "limit", "kept"), [(86400, "10m", 600), (0, "10m", 5), (0, "1s", 1)])
async def test_the_ttl_has_bounds(monkeypatch: pytest.MonkeyPatch, own: int, limit: str, kept: int) -> None:
    now = 1000.0
    monkeypatch.setattr(under_test, "monotonic", lambda: now)
    async with resolving(lives=own, ttl=limit) as (resolver, server):
        await resolver.mx("example.test")
        now += kept - 0.5
        await resolver.mx("example.test")
        assert len(server.asked) == 1
        now += 1
        await resolver.mx("example.test")
        assert len(server.asked) == 2


async def test_the_cache_is_bounded_and_drops_the_least_recently_used() -> None:
    async with resolving(entries=2) as (resolver, server):
        for name in ("example.test", "null.test", "example.test", "half.test", "example.test"):
            await resolver.mx(name)
        assert len(server.asked) == 3
        await resolver.mx("null.test")
        assert len(server.asked) == 4


async def test_equal_concurrent_queries_are_sent_once() -> None:
    async with resolving() as (resolver, server):
        answers = await asyncio.gather(*(resolver.mx("example.test") for _ in range(50)))
        assert len(server.asked) == 1
        assert len(set(answers)) == 1


async def test_concurrent_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now = most = 0

    async def query(*question: object) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        raise OSError("no server to ask")

    monkeypatch.setattr(under_test, "_AT_ONCE", 3)
    resolver = Resolver(Dns())
    monkeypatch.setattr(resolver, "_query", query)
    answers = await asyncio.gather(*(resolver.mx(f"d{n}.test") for n in range(20)))
    assert {(a.state, a.text) for a in answers} == {("failed", "no server to ask")}
    assert most == 3


async def test_a_query_survives_its_first_caller_and_close_ends_the_others() -> None:
    async with resolving(timeout="30s") as (resolver, server):
        first, second = (asyncio.create_task(resolver.mx("silent.test")) for _ in range(2))
        await until(lambda: server.asked, "the question")
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not second.done()
        await resolver.close()
        with pytest.raises(ResolverClosedError):
            await second
        with pytest.raises(ResolverClosedError):
            await resolver.mx("example.test")


@pytest.mark.parametrize("text", ["", ".", "a..b", "x" * 64 + ".test", ".".join(["abcdefgh"] * 40)])
async def test_an_invalid_name_is_not_queried(text: str) -> None:
    async with resolving() as (resolver, server):
        with pytest.raises(ValueError, match="is not a domain name"):
            await resolver.mx(text)
        assert server.asked == []


async def test_recipients_of_silent_name_servers_are_parked_and_the_late_answer_is_cached() -> None:
    async with resolving(timeout="2500ms") as (resolver, server):
        begun = monotonic()
        with pytest.raises(ParkedError) as parked:
            await resolver.mx("silent.test")
        assert parked.value.until.reason == "DNS does not answer about silent.test"
        assert parked.value.until.stopped == "destination"
        assert 1 <= parked.value.until.seconds <= monotonic() - begun + 1, "as long again as it has waited, and spread"
        assert resolver.shut("silent.test") is not None, "the next one is parked before its body is read"
        assert (await resolver.mx("example.test")).state == "found"
        asked = server.asked.count(("silent.test", "MX"))
        await until(lambda: not resolver._asking, "the question to end")
        answer = await resolver.mx("silent.test")
        assert (answer.state, answer.text) == ("failed", "no answer within 2.5 s")
        assert server.asked.count(("silent.test", "MX")) <= asked + 1, "the same question goes on"


async def test_mail_that_waits_for_a_slow_answer_does_not_wait_for_the_time_limit() -> None:
    async with resolving(timeout="1h") as (resolver, server):
        begun = monotonic()
        with pytest.raises(ParkedError) as parked:
            await resolver.mx("silent.test")
        assert parked.value.until.seconds <= monotonic() - begun + 1
        server.records["silent.test", "MX"] = ["10 mx1.example.test."]
        await until(lambda: not resolver._asking, "the answer to the question, which was sent again")
        assert resolver.shut("silent.test") is None
        assert (await resolver.mx("silent.test")).state == "found"


async def test_silent_zones_take_only_their_share_of_the_queries() -> None:
    silent = {(f"d{n}.evil.test", "MX"): [SILENT] for n in range(300)} | {
        (f"{n}.e{n}.test", "MX"): [SILENT] for n in range(300)
    }
    async with FakeDns({("good.test", "MX"): ["10 mx.good.test."], **silent}) as server:
        resolver = Resolver(Dns.model_validate({"servers": [server.where], "timeout": "30s"}))
        try:
            for _ in range(3):
                asking = [_unless_parked(resolver, name) for name, _ in silent]
                assert set(await asyncio.gather(*asking)) == {None}
                assert len(resolver._going) <= 100
            assert (await resolver.mx("good.test")).state == "found", "it would be parked if it had to wait"
            with pytest.raises(ParkedError) as parked:
                await resolver.mx("another.evil.test")
            assert parked.value.until.reason == "DNS does not answer about evil.test"
        finally:
            await resolver.close()


async def test_a_new_query_goes_before_hundreds_of_repeated_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(under_test, "_PROMPT", 0.3)
    monkeypatch.setattr(unanswered, "_LEAST", 60.0)  # seconds for which each is left alone, and not 1: all of this test
    monkeypatch.setattr(under_test, "_WAITING", 600)
    silent = [f"bad{n}.test" for n in range(200)]  # they have every place
    behind = [f"late{n}.test" for n in range(800)]  # 600 wait for one, the others are refused
    answered = {(name, "MX"): ["10 mx.example.test."] for name in ("good.test", *behind)}
    async with FakeDns({**answered, **{(name, "MX"): [SILENT] for name in silent}}) as server:
        resolver = Resolver(Dns.model_validate({"servers": [server.where]}))
        try:
            asking = [asyncio.create_task(_unless_parked(resolver, name)) for name in (*silent, *behind)]
            await asyncio.sleep(0)  # each of them enters the line, with its own patience, in its first step
            resolver.patience = 9.0  # of the calls from here on: the places are taken for longer than the usual 1.2 s
            assert resolver.shut("good.test", follow=600) is not None, "its mail is parked before its body is read"
            await until(lambda: len(server.asked) >= 200, "every place to be taken")
            monkeypatch.setattr(under_test, "_PROMPT", 10.0)  # of those asked from here on, which are all answered
            assert resolver.shut("good.test") is None, "it is the newest, and no newer mail follows"
            asked = len(server.asked)
            assert (await resolver.mx("good.test")).state == "found"
            assert server.asked.index(("good.test", "MX")) <= asked + 200, "only those that had a place are before it"
            assert resolver.shut("good.test") is None, "it is known"
            answers = await asyncio.gather(*asking)
            assert set(answers[: len(silent)]) == {None}
            await until(lambda: not resolver._asking.keys() - resolver._going, "the places to become free")
            going = {name for name, _ in resolver._going}
            gave_up = next(name for name in silent if name not in going)
            asked = len(server.asked)
            assert resolver.shut("new.test") is None, "there is a place"
            assert resolver.shut(gave_up) is not None
            with pytest.raises(ParkedError) as parked:
                await resolver.mx(gave_up)
            assert 1 < parked.value.until.seconds <= 2 * 60 + SOONEST, "it is left alone for about that long"
            assert (gave_up, "MX") not in server.asked[asked:]
        finally:
            await resolver.close()


async def test_an_expired_answer_is_used_while_name_servers_are_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(under_test, "monotonic", lambda: now)
    async with resolving(lives=60, timeout="1s") as (resolver, server):
        known = await resolver.mx("example.test")
        server.records["example.test", "MX"] = [SILENT]
        now += 61
        assert await resolver.mx("example.test") == known
        now += 86_400
        assert (await resolver.mx("example.test")).state == "failed"


async def _unless_parked(resolver: Resolver, name: str) -> Answer[tuple[int, str]] | None:
    try:
        return await resolver.mx(name)
    except ParkedError:
        return None


class _Deep(FakeDns):
    """Answers with as many MX records as there is room for, whose names have 120 labels each."""

    def __init__(self, *, by_tcp: bool) -> None:
        super().__init__({})
        self._by_tcp = by_tcp

    def answer(self, wire: bytes, *, tcp: bool = False) -> bytes | None:
        end = wire.index(b"\0", 12) + 5
        size, records = 65_535 if tcp else 1232, b""
        if tcp or not self._by_tcp:
            data = [b"\0\1\2" + b"%02x" % (n % 256) + b"\xc0\x0c" for n in range((size - end) // 19)]
            records = b"".join(b"\xc0\x0c\0\x0f\0\1\0\0\1\0\0\7" + each for each in data)
        flags = b"\x81\x80" if records else b"\x83\x80"
        return wire[:2] + flags + b"\0\1" + (len(records) // 19).to_bytes(2) + bytes(4) + wire[12:end] + records


@pytest.mark.parametrize("by_tcp", [True, False])
async def test_an_answer_made_to_be_read_for_long_is_a_failure_at_once(*, by_tcp: bool) -> None:
    async with _Deep(by_tcp=by_tcp) as server:
        resolver = Resolver(Dns.model_validate({"servers": [server.where]}))
        begun = process_time()
        answer = await resolver.mx("a." * 120 + "test")
        took = process_time() - begun
        await resolver.close()
        assert answer.state == "failed"
        assert took < 0.2
