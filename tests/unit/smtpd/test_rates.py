"""test_rates — the limits that apply to a client, and where they are counted

Owns: proofs about smtpd/rates/limits.py, smtpd/rates/server.py and smtpd/rates/client.py without processes; the
    counting itself is in tests/property/smtpd/test_rate_count.py, the processes are in a scenario.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.smtpd.rates import Rates as Settings
from smtpd import replies
from smtpd.envelope.client import Client, User
from smtpd.rates.client import RemoteCounts
from smtpd.rates.counters import Limit
from smtpd.rates.limits import ALLOWED, ClientRates
from smtpd.rates.server import LocalRateCounts, RateServer, answer

if TYPE_CHECKING:
    from tests.fixtures.heard import Heard

TRUSTED = [ip_network("127.0.0.0/8")]


class Clock:
    """A clock that advances only on request."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def rates(clock: Clock | None = None, **settings: Any) -> ClientRates:
    server = RateServer(clock or Clock())
    return ClientRates(Settings.model_validate(settings), TRUSTED, LocalRateCounts(server))


def client(address: str, user: User | None = None) -> Client:
    return Client(address, 1, "mx", user=user)


async def test_an_address_and_its_network_have_separate_limits() -> None:
    asked = rates(address={"messages": 1}, network={"messages": 2})
    assert (await asked.hit("message", client("192.0.2.1"))).allowed
    refused = await asked.hit("message", client("192.0.2.1"))
    assert (refused.allowed, refused.reply) == (False, replies.R450_TOO_MANY_MESSAGES)
    assert refused.seconds == pytest.approx(60)
    assert (await asked.hit("message", client("192.0.2.2"))).allowed
    assert not (await asked.hit("message", client("192.0.2.3"))).allowed, "the network has had its two"
    assert (await asked.hit("message", client("198.51.100.1"))).allowed


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),  # one /64 is one host
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("192.0.2.1", "192.0.2.2", False),
    ],
)
async def test_an_ipv4_address_or_an_ipv6_64_counts_as_one_address(first: str, second: str, *, same: bool) -> None:
    asked = rates(address={"messages": 1})
    assert (await asked.hit("message", client(first))).allowed
    assert (await asked.hit("message", client(second))).allowed is not same


async def test_loopback_and_listed_networks_are_exempt_from_rates() -> None:
    settings: dict[str, Any] = {"address": {"messages": 1, "sessions": 1, "connections": 1}}
    by_default, by_name = rates(**settings), rates(**settings, exempt=["192.0.2.0/24"])
    for asked, free in ((by_default, "127.0.0.1"), (by_name, "192.0.2.1"), (by_name, "::ffff:192.0.2.9")):
        for _ in range(3):
            assert await asked.hit("message", client(free)) is ALLOWED
            assert await asked.connected(client(free)) is ALLOWED
    assert not [await by_name.hit("message", client("127.0.0.1")) for _ in range(2)][1].allowed


async def test_a_client_without_address_is_allowed() -> None:
    assert await rates().connected(client("")) is ALLOWED


async def test_sessions_and_connections_are_limited() -> None:
    clock = Clock()
    asked = rates(clock, address={"sessions": 2, "connections": 3})
    first, second = [await asked.connected(client("192.0.2.1")) for _ in range(2)]
    assert first.allowed
    assert (await asked.connected(client("192.0.2.1"))).reply == replies.R421_TOO_MANY_SESSIONS
    asked.disconnected(first)
    asked.disconnected(first)
    assert (await asked.connected(client("192.0.2.1"))).allowed
    asked.disconnected(second)
    late = await asked.connected(client("192.0.2.1"))
    assert (late.reply, late.token) == (replies.R421_TOO_MANY_CONNECTIONS, 0)
    clock.now += late.seconds
    assert (await asked.connected(client("192.0.2.1"))).allowed, "a refused client has no session"


@pytest.mark.parametrize(
    ("network", "block", "other"),
    [({}, 4, 2), ({"sessions": 3}, 6, 3), ({"sessions": 0}, 12, 3), ({"ipv6prefix": 48}, 2, 2)],
    ids=["derived", "of one's own", "none", "a network is a block"],
)
async def test_an_ipv6_block_has_the_sessions_of_two_networks(network: dict[str, int], block: int, other: int) -> None:
    """Four /56, each with three hosts; of another /48 one."""
    asked = ClientRates(
        Settings.model_validate({"network": network}), TRUSTED, LocalRateCounts(RateServer(Clock())), room=8
    )

    async def let_in(networks: list[str]) -> int:
        clients = [client(f"{site}{n}::1") for n in range(3) for site in networks]
        return sum([(await asked.connected(each)).allowed for each in clients])

    assert await let_in([f"2001:db8:1:{n}0" for n in range(1, 5)]) == block
    assert await let_in(["2001:db8:2:10"]) == other
    ipv4 = [(await asked.connected(client(f"192.0.{n}.1"))).allowed for n in range(100)]
    assert all(ipv4), "IPv4 has no such block"


async def test_limits_of_a_user_apply_in_trusted_networks_too() -> None:
    asked = rates(user={"messages": 1})
    alice, bob = User("alice"), User("bob", messages=2)
    assert (await asked.hit("message", client("127.0.0.1", alice))).allowed
    assert not (await asked.hit("message", client("192.0.2.1", alice))).allowed
    found = [(await asked.hit("message", client("192.0.2.1", bob))).seconds for _ in range(3)]
    assert found == [0, 0, pytest.approx(1800)], "a user's own limit is by the hour"


async def test_every_recipient_is_counted() -> None:
    asked = rates(address={"recipients": 10})
    assert (await asked.hit("recipient", client("192.0.2.1"), 8)).allowed
    assert (await asked.hit("recipient", client("192.0.2.1"), 3)).reply == replies.R450_TOO_MANY_RECIPIENTS
    assert (await asked.hit("recipient", client("192.0.2.1"), 2)).allowed


async def test_any_key_can_be_counted() -> None:
    asked = rates()
    assert await asked.count("auth/192.0.2.1", 1, 60, 0) == 0
    assert await asked.count("auth/192.0.2.1", 1, 60) == 0
    assert await asked.count("auth/192.0.2.1", 1, 60, 0) == pytest.approx(60)
    assert await asked.count("auth/192.0.2.2", 1, 60, 0) == 0


async def test_new_settings_keep_the_counts() -> None:
    clock = Clock()
    asked = rates(clock, address={"messages": 1})
    assert (await asked.hit("message", client("192.0.2.1"))).allowed
    asked.configure(Settings.model_validate({"address": {"messages": 2}}), TRUSTED)
    refused = await asked.hit("message", client("192.0.2.1"))
    assert refused.seconds == pytest.approx(30), "at the new rate, after the message sent at the old one"
    clock.now += refused.seconds
    assert (await asked.hit("message", client("192.0.2.1"))).allowed
    asked.configure(Settings(), TRUSTED)
    assert await asked.hit("message", client("192.0.2.1")) is ALLOWED


async def test_sessions_of_an_ended_process_are_released() -> None:
    server = RateServer()
    assert server.open(1, 7, [("a", 2)], []) == (True, 0.0)
    assert server.open(2, 7, [("a", 2)], []) == (True, 0.0)
    assert server.open(2, 8, [("a", 2)], []) == (False, 0.0)
    server.gone(1)
    assert server.open(2, 8, [("a", 2)], []) == (True, 0.0)
    server.close(2, 7)
    server.close(2, 7)
    assert server.open(3, 1, [("a", 2)], []) == (True, 0.0)


async def test_remote_counts_behave_like_local_ones() -> None:
    server = RateServer(Clock())

    def ask(question: dict[str, Any]) -> None:
        found = answer(server, 1, question)
        if found is not None:
            asyncio.get_running_loop().call_soon(remote.answered, found)

    remote = RemoteCounts(ask, 1)
    asked = ClientRates(Settings.model_validate({"address": {"sessions": 1, "messages": 1}}), [], remote)
    first = await asked.connected(client("192.0.2.1"))
    assert not (await asked.connected(client("192.0.2.1"))).allowed
    asked.disconnected(first)
    assert (await asked.connected(client("192.0.2.1"))).allowed
    assert [(await asked.hit("message", client("192.0.2.1"))).allowed for _ in range(2)] == [True, False]


async def test_a_client_that_disconnects_while_counted_is_released() -> None:
    questions: list[dict[str, Any]] = []
    asked = ClientRates(Settings.model_validate({"address": {"sessions": 1}}), [], RemoteCounts(questions.append, 1))
    asking = asyncio.create_task(asked.connected(client("192.0.2.1")))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert [question["ask"] for question in questions] == ["open", "close"]
    assert questions[0]["token"] == questions[1]["token"]


async def test_without_the_counting_process_each_process_has_its_share(heard: Heard) -> None:
    clock = Clock()
    remote = RemoteCounts(lambda _: None, 3, clock)
    asked = ClientRates(Settings.model_validate({"address": {"sessions": 7, "messages": 7}}), [], remote)
    verdicts = [await asked.connected(client("192.0.2.1")) for _ in range(3)]
    assert [verdict.allowed for verdict in verdicts] == [True, True, False]
    assert [(await asked.hit("message", client("192.0.2.1"))).allowed for _ in range(3)] == [True, True, False]
    asked.disconnected(verdicts[0])
    clock.now += 30
    assert (await asked.connected(client("192.0.2.1"))).allowed
    assert (await asked.hit("message", client("192.0.2.1"))).allowed
    [said] = heard.all("rates.unanswered")
    assert said["ask"] == "open"
    remote.answered({"id": 1, "wait": 0.0})  # too late: it is ignored


async def test_questions_without_an_answer_are_bounded() -> None:
    """A client could fill the memory with them while the counting process stands still, and it had all to catch up."""
    sent: list[dict[str, Any]] = []
    counts = RemoteCounts(sent.append, 2, Clock(), patience=0)
    limits = [Limit("message/address/192.0.2.1", 10, 60.0)]
    allowed = [await counts.hit(limits, 1) for _ in range(3000)].count(0)
    assert (len(sent), allowed) == (1000, 5)
    await counts.open(7, [("session/address/192.0.2.1", 1)], [])
    counts.close(7)
    assert len(sent) == 1000, "no session of which it knows nothing is closed"
    for question in sent:
        counts.answered({"id": question["id"], "wait": 0.0})
    await counts.hit(limits, 1)
    assert len(sent) == 1001
    for _ in range(2000):
        await counts.hit(limits, 1)
    counts.disconnected()
    await counts.hit(limits, 1)
    assert len(sent) == 2001


def test_an_unknown_question_raises_an_error() -> None:
    with pytest.raises(ValueError, match="no such question"):
        answer(RateServer(), 1, {"ask": "who"})


class Stalling:
    """A counting process that answers at once, or reads no question while it is stalled."""

    def __init__(self, clock: Clock) -> None:
        self.server = RateServer(clock)
        self.stalled = False
        self._unread: list[tuple[int, dict[str, Any]]] = []

    def remote(self, process: int, processes: int, clock: Clock) -> RemoteCounts:
        def send(question: dict[str, Any]) -> None:
            if self.stalled:
                self._unread.append((process, question))
            elif (found := answer(self.server, process, question)) is not None:
                asyncio.get_running_loop().call_soon(made.answered, found)

        made = RemoteCounts(send, processes, clock)
        return made

    def resume(self) -> None:
        """Read the questions that came meanwhile."""
        self.stalled = False
        for process, question in self._unread:
            answer(self.server, process, question)
        self._unread.clear()


async def test_a_used_up_limit_stays_used_up_without_the_counting_process() -> None:
    clock = Clock()
    stalling = Stalling(clock)
    one, two = (
        ClientRates(Settings.model_validate({"address": {"messages": 10, "sessions": 10}}), [], remote)
        for remote in (stalling.remote(1, 2, clock), stalling.remote(2, 2, clock))
    )
    for _ in range(10):
        assert (await one.hit("message", client("192.0.2.1"))).allowed
        assert (await one.connected(client("192.0.2.1"))).allowed
    stalling.stalled = True
    hits = [(await rates.hit("message", client("192.0.2.1"))).allowed for rates in (one, two) for _ in range(8)]
    assert hits == [False] * 8 + [True] * 5 + [False] * 3
    sessions = [(await rates.connected(client("192.0.2.1"))).allowed for rates in (one, two) for _ in range(8)]
    assert sessions == [False] * 8 + [True] * 5 + [False] * 3
    stalling.resume()
    assert not (await two.hit("message", client("192.0.2.1"))).allowed
    assert stalling.server._sessions.count("session/address/192.0.2.1/32") == 10, "refused sessions are not counted"


async def test_a_known_ban_applies_without_the_counting_process() -> None:
    clock = Clock()
    stalling = Stalling(clock)
    one, two, three = (ClientRates(Settings(), [], stalling.remote(n, 3, clock)) for n in (1, 2, 3))
    assert await one.count("auth/ban/x", 1, 600) == 0
    assert await two.count("auth/ban/x", 1, 600, 0) == pytest.approx(600)
    stalling.stalled = True
    for knows in (one, two):
        assert await knows.count("auth/ban/x", 1, 600, 0) == pytest.approx(600)
    assert await three.count("auth/ban/x", 1, 600, 0) == 0
    clock.now += 601
    assert await one.count("auth/ban/x", 1, 600, 0) == 0
