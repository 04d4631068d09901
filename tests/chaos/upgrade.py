"""upgrade — a rolling upgrade while mail flows, and back: old and new code run side by side on one schema

Owns: `to_newer`, from this tree to one with migrations to come.
Guarantees: daemons are stopped as an operator stops them, one after the other, so nothing may arrive twice.
See: docs/how-to/operate/upgrade.md; shared/postgres/migrate.py, `compare`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scripts.daemons import DaemonFailed
from tests.fixtures.daemons.code_versions import migrate_as, newer, running
from tests.fixtures.daemons.flow import flowing
from tests.fixtures.daemons.system import ROOT, System

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.accounts import Figures
    from tests.fixtures.daemons.flow import Flow
    from tests.fixtures.daemons.system import Daemon

_ENOUGH = 100  # recipients between two steps
#: An attempt of the worker that leaves came after one of the worker that comes: both served at the same time.
_SIDE_BY_SIDE = """SELECT (SELECT max(ts) FROM attempts WHERE worker LIKE %s)
                        > (SELECT min(ts) FROM attempts WHERE worker LIKE %s)"""


async def to_newer(uri: str, folder: Path) -> Figures:
    """`uri`: a database made by this tree, which is the old code.

    It keeps running while the newer code migrates tables in use, restarts on the newer schema, serves beside the newer
    code, and can take over again (a rollback); after the last step it no longer starts.
    """
    future = newer(folder / "newer")
    async with flowing(System(uri, folder)) as flow:
        doors, old = await start(flow, ROOT, "old")
        flow.send_to(doors)
        await flow.more_arrived(_ENOUGH)
        await refused(flow, future, r"_pre_tomorrow missing; run `pillarbox migrate`")
        [added] = await asyncio.to_thread(migrate_as, future, uri, "pre")
        assert added.endswith("_pre_tomorrow")
        await flow.more_arrived(_ENOUGH)
        for daemon in old:
            assert await daemon.stop() == 0
            await daemon.start()
        await flow.more_arrived(_ENOUGH)
        assert await asyncio.to_thread(migrate_as, ROOT, uri) == []
        new = await replace(flow, doors, old, future, "old", "new")
        assert await flow.system.rows("SELECT DISTINCT code FROM archive ORDER BY code") == [("new",), ("old",)]
        back = await replace(flow, doors, new, ROOT, "new", "back")
        await replace(flow, doors, back, future, "back", "again")
        [removed] = await asyncio.to_thread(migrate_as, future, uri)
        assert removed.endswith("_post_tomorrow")
        await flow.more_arrived(_ENOUGH)
        await refused(flow, ROOT, f"newer than this code: it has {removed}")
        return await flow.finish()


async def start(flow: Flow, code: Path, name: str) -> tuple[list[Daemon], list[Daemon]]:
    """Start an smtpd and a worker of this code: the present addresses, and both daemons."""
    flow.system.environment = running(code)
    smtpd = await flow.system.smtpd(f"smtpd-{name}")
    worker = await flow.system.worker(flow.sink.port, f"worker-{name}")
    return [smtpd], [smtpd, worker]


async def replace(
    flow: Flow, doors: list[Daemon], old: list[Daemon], code: Path, leaving: str, coming: str
) -> list[Daemon]:
    """Start daemons of this code beside the old ones, send mail through both, and stop the old ones; the new ones."""
    more, new = await start(flow, code, coming)
    doors += more
    await flow.more_arrived(_ENOUGH)
    await flow.system.until(_SIDE_BY_SIDE, f"worker-{leaving}@%", f"worker-{coming}@%")
    smtpd, worker = old
    doors.remove(smtpd)
    assert await smtpd.stop() == 0
    await flow.more_arrived(_ENOUGH)
    assert await worker.stop() == 0
    await flow.more_arrived(_ENOUGH)
    assert all(daemon.log for daemon in new)
    return new


async def refused(flow: Flow, code: Path, why: str) -> None:
    """A daemon of this code does not start; its last line says why."""
    flow.system.environment = running(code)
    with pytest.raises(DaemonFailed, match=why):
        await flow.system.smtpd("smtpd-refused")
