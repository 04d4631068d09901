"""test_system_names — hosts in queued.yaml are resolved by the system, and slow names delay no other mail"""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from queued.routing import system_names as under_test
from queued.routing.system_names import SystemNames
from tests.fixtures.waiting import PATIENCE


async def test_system_names_are_resolved_and_addresses_returned_unchanged() -> None:
    names = SystemNames()
    assert "127.0.0.1" in await names.addresses("localhost")
    assert await names.addresses("192.0.2.1") == ("192.0.2.1",)
    assert await names.addresses("2001:db8::1") == ("2001:db8::1",)


async def test_slow_names_block_only_their_own_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, asked = threading.Event(), list[str]()

    def slowly(host: str, *rest: Any, **options: Any) -> Any:
        asked.append(host)
        if host.startswith("slow"):
            go.wait(PATIENCE)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.9", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    names = SystemNames(threads=4)
    try:
        waiting = [asyncio.create_task(names.addresses(f"slow{n % 3}.test")) for n in range(100)]
        assert await names.addresses("quick.test") == ("192.0.2.9",)
        assert await asyncio.get_running_loop().run_in_executor(None, lambda: 7) == 7
        assert not any(task.done() for task in waiting)
    finally:
        go.set()
    assert set(await asyncio.gather(*waiting)) == {("192.0.2.9",)}
    assert sorted(asked) == ["quick.test", "slow0.test", "slow1.test", "slow2.test"], "a name is asked for once"


async def test_a_cached_name_is_used_while_it_is_resolved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now, failing = 1000.0, False

    def look_up(host: str) -> under_test._Known:
        return under_test._Known(now, failure=(-3, "later")) if failing else under_test._Known(now, ("192.0.2.9",))

    monkeypatch.setattr(under_test, "monotonic", lambda: now)
    monkeypatch.setattr(under_test, "_look_up", look_up)
    names = SystemNames()
    assert await names.addresses("host.test") == ("192.0.2.9",)
    failing = True
    now += 60
    assert await names.addresses("host.test") == ("192.0.2.9",), "the cached address is used in the meantime"
    now += 600
    with pytest.raises(OSError, match="later"):
        await names.addresses("host.test")
