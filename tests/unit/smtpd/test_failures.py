"""test_failures — failed logins are delayed, then banned, without effect on other networks"""

from __future__ import annotations

import asyncio
import gc
from ipaddress import ip_network
from typing import Any

import pytest

from shared.config.smtpd.authentication import Failures as Settings
from smtpd.login.failures import Attempt, Banned, Failures


class Clock:
    """A clock that moves only when it is set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def failures(clock: Clock | None = None, trusted: str = "10.0.0.0/8", **settings: Any) -> Failures:
    return Failures(Settings.model_validate(settings), [ip_network(trusted)], clock=clock or Clock())


async def fail(counted: Failures, times: int, address: str = "192.0.2.1", name: str = "alice") -> list[float]:
    return [(await counted.failed(address, name))[0] for _ in range(times)]


async def test_delays_double_up_to_the_maximum() -> None:
    assert await fail(failures(delay="1s", maxdelay="5s"), 5) == [1, 2, 4, 5, 5]
    assert await fail(failures(delay="0s"), 3) == [0, 0, 0]


async def test_delays_grow_by_user_name_from_any_address() -> None:
    counted = failures()
    delays = [(await fail(counted, 1, f"198.51.{number}.1"))[0] for number in range(4)]
    assert delays == [1, 2, 4, 8]
    assert await fail(counted, 1, "203.0.113.1", "bob") == [1]


async def test_delays_are_forgotten_after_a_while() -> None:
    clock = Clock()
    counted = failures(clock, within="1m")
    assert await fail(counted, 3) == [1, 2, 4]
    clock.now += 61
    assert await fail(counted, 1) == [1]


async def test_failures_ban_the_address_and_the_name_in_its_network() -> None:
    clock = Clock()
    counted = failures(clock, ban=3, bantime="10m")
    await fail(counted, 3)
    assert not await counted.address_banned("192.0.2.1")
    assert (await counted.failed("192.0.2.1", "alice"))[1]
    assert await counted.address_banned("192.0.2.1")
    assert await counted.name_banned("alice", "192.0.2.200")
    assert not await counted.name_banned("bob", "192.0.2.200")
    assert not await counted.address_banned("192.0.2.200")
    assert not await counted.name_banned("alice", "192.0.3.1"), "alice is not locked out from elsewhere"
    clock.now += 599
    assert await counted.address_banned("192.0.2.1")
    clock.now += 2
    assert not await counted.address_banned("192.0.2.1")
    assert not await counted.name_banned("alice", "192.0.2.1")


async def test_addresses_of_one_network_ban_a_name_together() -> None:
    counted = failures(ban=3)
    for number in range(4):
        await fail(counted, 1, f"192.0.2.{number}")
    assert await counted.name_banned("alice", "192.0.2.99")
    assert not await counted.address_banned("192.0.2.1")


async def test_a_botnet_never_bans_a_name_everywhere() -> None:
    counted = failures(ban=3)
    for number in range(200):
        await fail(counted, 1, f"198.51.{number}.1")
    assert not await counted.name_banned("alice", "203.0.113.1")


@pytest.mark.parametrize(
    ("failed", "other", "banned"),
    [
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("nowhere", "nowhere", True),
    ],
)
async def test_an_ipv4_address_or_an_ipv6_64_counts_as_one_address(failed: str, other: str, banned: bool) -> None:  # noqa: FBT001 - expected
    counted = failures(ban=1)
    await fail(counted, 2, failed)
    assert await counted.address_banned(other) is banned


async def test_trusted_networks_are_delayed_and_never_banned() -> None:
    counted = failures(ban=1)
    assert await fail(counted, 4, "10.1.2.3") == [1, 2, 4, 8]
    assert not await counted.address_banned("10.1.2.3")
    counted = failures(ban=1, trusted="192.0.2.0/24")
    await fail(counted, 2, "10.1.2.3")
    assert await counted.address_banned("10.1.2.3")


async def test_a_ban_of_0_disables_bans() -> None:
    counted = failures(ban=0)
    await fail(counted, 50)
    assert not await counted.address_banned("192.0.2.1")


async def test_failures_spread_over_time_cause_no_ban() -> None:
    clock = Clock()
    counted = failures(clock, ban=3, within="3m")
    for _ in range(50):
        clock.now += 61
        await fail(counted, 1)
    assert not await counted.address_banned("192.0.2.1")


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smtpd.login.failures._MOST_KEYS", 10)
    counted = failures()
    for number in range(50):
        await fail(counted, 1, f"198.51.100.{number}", f"user {number}")
    assert len(counted._lately) == 10


async def test_long_names_take_no_more_memory_than_others() -> None:
    """A name may have nine thousand characters, and any client may send as many names as there are keys."""
    keys: list[str] = []

    class Counts:
        async def count(self, key: str, _most: int, _window: float, _n: int = 1) -> float:
            keys.append(key)
            return 0.0

    counted = Failures(Settings.model_validate({}), [], Counts(), clock=Clock())
    long = ["x" * 9000 + end for end in "ab"]
    for name in long:
        await counted.failed("192.0.2.1", name)
    assert len({key for key in keys if "failures/name" in key}) == len(long)
    assert max(map(len, keys)) < 200
    assert max(map(len, counted._lately)) < 200


async def test_a_right_password_is_not_counted_as_a_failure() -> None:
    counted = failures(ban=2)
    for _ in range(20):
        await counted.right(await counted.begin("192.0.2.1", "alice"))
    await fail(counted, 2)
    await counted.right(await counted.begin("192.0.2.1", "alice"))
    assert not await counted.address_banned("192.0.2.1")
    assert (await counted.failed("192.0.2.1", "alice"))[1]
    with pytest.raises(Banned):
        await counted.begin("192.0.2.1", "bob")
    with pytest.raises(Banned):
        await counted.begin("192.0.2.2", "alice")


async def waiting(tasks: list[asyncio.Task[Attempt]]) -> list[asyncio.Task[Attempt]]:
    """Those that wait, once nothing else can happen."""
    for _ in range(20 * len(tasks)):
        await asyncio.sleep(0)
    return [task for task in tasks if not task.done()]


async def test_concurrent_logins_are_limited_to_the_failures_left() -> None:
    counted = failures(ban=3)
    tasks = [asyncio.create_task(counted.begin("192.0.2.1", "alice")) for _ in range(9)]
    assert len(await waiting(tasks)) == 6
    await counted.right(tasks[0].result())
    left = await waiting(tasks)
    assert len(left) == 5
    for task in tasks[1:4]:
        assert not (await counted.wrong(task.result()))[1]
    left = await waiting(tasks)
    assert len(left) == 4, "the last one that may fail, alone"
    assert (await counted.wrong(tasks[4].result()))[1]
    for task in left:
        with pytest.raises(Banned):
            await task


async def test_a_cancelled_login_does_not_block_others() -> None:
    counted = failures(ban=1)
    first = await counted.begin("192.0.2.1", "alice")
    tasks = [asyncio.create_task(counted.begin("192.0.2.2", "alice")) for _ in range(3)]
    assert len(await waiting(tasks)) == 3
    tasks[0].cancel()
    await counted.right(first)
    await counted.right(await tasks[1])
    await counted.right(await tasks[2])
    tasks.clear()
    gc.collect()  # of the cancelled one a traceback is left
    assert not counted._turns, "cancelled logins leave no entry"


async def test_disabling_bans_releases_waiting_logins() -> None:
    counted = failures(ban=1)
    first = await counted.begin("192.0.2.1", "alice")
    second = asyncio.create_task(counted.begin("192.0.2.1", "alice"))
    assert await waiting([second])
    counted.configure(Settings(ban=0), [])
    await counted.right(first)
    await counted.wrong(await second)
