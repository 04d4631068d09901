"""test_health — alive and ready are separate, and each reports its failure in one line

Owns: proofs about shared/postgres/health.py and a worker's wake-ups, fed by the events themselves.
"""

from __future__ import annotations

import pytest

from queued.metrics import Wakeups
from shared.observe.events import emit, watched
from shared.postgres.health import Health


async def well() -> str | None:
    return None


async def ill() -> str | None:
    return "PostgreSQL does not answer"


async def test_a_daemon_is_alive_and_ready_by_default() -> None:
    health = Health(well, well)
    assert (await health.not_alive(), await health.not_ready()) == (None, None)


async def test_the_first_reason_is_reported() -> None:
    health = Health(well, ill)
    assert (await health.not_alive(), await health.not_ready()) == (None, "PostgreSQL does not answer")


async def test_a_stopping_daemon_is_alive_and_not_ready() -> None:
    health = Health(ill)
    with watched(health.watchers()):
        emit("daemon.stopping", signal="SIGTERM")
    assert (await health.not_alive(), await health.not_ready()) == (None, "stopping")


async def test_a_failed_part_makes_the_daemon_not_alive() -> None:
    health = Health(well)
    with watched(health.watchers()):
        emit("daemon.failed", part="recorder", error="a secret")
    assert await health.not_alive() == await health.not_ready() == "a part died: recorder"


async def test_a_failed_attempt_leaves_the_daemon_alive() -> None:
    health = Health(well)
    with watched(health.watchers()):
        emit("daemon.failed", part="attempt", error="e")
    assert (await health.not_alive(), await health.not_ready()) == (None, None)


async def test_a_worker_is_ready_once_it_listens() -> None:
    wakeups = Wakeups("listen")
    assert await wakeups.unaware() == "not listening for notifications yet"
    with watched(wakeups.watchers()):
        emit("wakeup.listening")
    assert (wakeups.listening, await wakeups.unaware()) == (True, None)


@pytest.mark.parametrize("event", ["wakeup.lost", "wakeup.deaf", "wakeup.swallowed"])
async def test_a_worker_that_cannot_listen_is_ready_by_polling(event: str) -> None:
    wakeups = Wakeups("listen")
    with watched(wakeups.watchers()):
        emit("wakeup.listening")
        emit(event, seconds=1.0)
        assert (wakeups.listening, await wakeups.unaware()) == (False, None)
        emit("wakeup.listening")
    assert wakeups.listening


async def test_a_polling_worker_is_ready_from_the_start() -> None:
    assert await Wakeups("poll").unaware() is None
