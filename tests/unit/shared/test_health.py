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


async def test_it_is_well_until_told_otherwise() -> None:
    health = Health(well, well)
    assert (await health.not_alive(), await health.not_ready()) == (None, None)


async def test_the_first_reason_is_told() -> None:
    health = Health(well, ill)
    assert (await health.not_alive(), await health.not_ready()) == (None, "PostgreSQL does not answer")


async def test_a_stop_makes_it_unready_and_no_less_alive() -> None:
    health = Health(ill)
    with watched(health.watchers()):
        emit("daemon.stopping", signal="SIGTERM")
    assert (await health.not_alive(), await health.not_ready()) == (None, "stopping")


async def test_a_part_that_died_is_the_end() -> None:
    health = Health(well)
    with watched(health.watchers()):
        emit("daemon.failed", part="recorder", error="a secret")
    assert await health.not_alive() == await health.not_ready() == "a part died: recorder"


async def test_a_fault_in_an_attempt_is_not() -> None:
    health = Health(well)
    with watched(health.watchers()):
        emit("daemon.failed", part="attempt", error="e")
    assert (await health.not_alive(), await health.not_ready()) == (None, None)


async def test_a_worker_notices_mail_once_it_listens() -> None:
    wakeups = Wakeups("listen")
    assert await wakeups.unaware() == "not listening for notifications yet"
    with watched(wakeups.watchers()):
        emit("wakeup.listening")
    assert (wakeups.listening, await wakeups.unaware()) == (True, None)


@pytest.mark.parametrize("event", ["wakeup.lost", "wakeup.deaf", "wakeup.swallowed"])
async def test_without_listening_it_polls(event: str) -> None:
    wakeups = Wakeups("listen")
    with watched(wakeups.watchers()):
        emit("wakeup.listening")
        emit(event, seconds=1.0)
        assert (wakeups.listening, await wakeups.unaware()) == (False, None)
        emit("wakeup.listening")
    assert wakeups.listening


async def test_one_that_only_polls_is_aware_from_the_start() -> None:
    assert await Wakeups("poll").unaware() is None
