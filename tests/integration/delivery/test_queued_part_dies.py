"""test_queued_part_dies — if any part of a worker ends, the whole worker stops and logs it

Owns: the end of each part of queued.daemon, and the steps of a stop as the log has them.
See: shared/lifecycle.py; queued/daemon.py.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import TYPE_CHECKING, Any, Final

import pytest

from queued import daemon
from queued.daemon import Worker
from scripts.sink.server import Sink
from shared import lifecycle
from shared.config.queued.settings import QueuedConfig
from tests.fixtures.heard import until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

PARTS: Final = (
    "wakeup",
    "recorder",
    "dispatcher",
    "heartbeat",
    "register",
    "presence",
    "maintain",
    "vacuum",
    "hints",
    "schedule",
    "paces",
    "notices",
    "webhooks",
)
WORKER: Final = Worker("dying", "true", "queued.yaml: workers[0].where")


def configured(factory: Factory, port: int = 1, **sections: Any) -> QueuedConfig:
    return QueuedConfig.model_validate(
        {
            "environment": {"database": {"uri": factory.uri}},
            "transports": [{"hostname": "queued.test", "connection": {"server": "127.0.0.1", "port": port}}],
            **sections,
        }
    )


def unchanged() -> QueuedConfig:
    raise AssertionError("no reload was requested")


async def boom() -> None:
    raise RuntimeError("boom")


@pytest.mark.parametrize("part", PARTS)
async def test_the_worker_stops_and_names_the_failed_part(
    factory: Factory, heard: Heard, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    made = daemon._Daemon._parts

    def parts(self: daemon._Daemon) -> dict[str, Coroutine[object, object, None]]:
        found = made(self)
        assert set(found) == set(PARTS)
        found[part].close()
        return {**found, part: boom()}

    monkeypatch.setattr(daemon._Daemon, "_parts", parts)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(lifecycle.PartDied, match=f"^{part}: RuntimeError"):
            await daemon.run(configured(factory), WORKER, unchanged)
    assert [fields["part"] for fields in heard.all("daemon.failed")] == [part]
    assert heard.all("daemon.stopped")


async def test_a_stop_logs_the_deliveries_it_waits_for(factory: Factory, heard: Heard) -> None:
    factory.rows(2)
    factory.sql("UPDATE pillarbox.queue SET recipientlocalpart = id || '.hangdot'")
    async with Sink() as sink:
        config = configured(factory, sink.port, shutdown={"timeout": "5s"})
        running = asyncio.create_task(daemon.run(config, WORKER, unchanged))
        await until(lambda: sink.received, "the sink has the message")
        os.kill(os.getpid(), signal.SIGTERM)
        [first, *_] = await heard.wait("daemon.waiting")
        assert (first["step"], first["on"]) == ("connections", "2 recipients")
        async with asyncio.timeout(PATIENCE):
            await running
    names = [name for name, _ in heard.events if name.startswith("daemon.")]
    assert names[0] == "daemon.started"
    assert names[1] == "daemon.stopping"
    assert names[-1] == "daemon.stopped"
