"""test_watch_deadletters — the watcher of dead letters reports each once, also after outages

Owns: proofs about `pillarbox deadletters watch`, run as the command it is.
See: docs/how-to/operate/handle-dead-letters.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.fixtures.heard import until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory

ROOT = Path(__file__).parents[3]
NAME = "pillarbox deadletters watch"


class Watching:
    """The command under way."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    async def printed(self) -> dict[str, Any]:
        """The next line."""
        assert self.child.stdout
        async with asyncio.timeout(PATIENCE):
            line: dict[str, Any] = json.loads(await self.child.stdout.readline())
        return line


@asynccontextmanager
async def watching(factory: Factory, folder: Path, *arguments: str) -> AsyncIterator[Watching]:
    """The command, ended by SIGINT."""
    (folder / "smtpd.yaml").write_text(json.dumps({"environment": {"database": {"uri": factory.uri}}}))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", "deadletters", "watch", "--config", str(folder), *arguments),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Watching(child)
    finally:
        child.send_signal(signal.SIGINT)
        assert child.stdout
        rest, status = await asyncio.gather(child.stdout.read(), child.wait())
    assert (rest, status) == (b"", 130)


def die(factory: Factory) -> int:
    """A recipient that finishes as lock_expired now; its id."""
    id_ = factory.row(status="HOLD")
    factory.sql(
        """UPDATE pillarbox.queue SET metadata = '{"_quarantineid": "poison"}', status = 'DELETE' WHERE id = %(id)s""",
        id=id_,
    )
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")
    return id_


async def test_each_dead_letter_is_reported_once_also_after_an_outage(factory: Factory, tmp_path: Path) -> None:
    before = die(factory)
    async with watching(factory, tmp_path, "--since", "1h") as watch:
        first = await watch.printed()
        assert (first["id"], first["result"], first["recipient"]) == (before, "lock_expired", "r1@example.com")
        during = [die(factory), die(factory)]
        assert [(await watch.printed())["id"] for _ in during] == during
        # Whoever lost the connection misses what is announced meanwhile, and finds it in the archive.
        for _ in range(2):
            assert factory.terminate(NAME) == 1
            missed = die(factory)
            assert (await watch.printed())["id"] == missed
        last = die(factory)
        assert (await watch.printed())["id"] == last


async def test_a_repeated_announcement_prints_no_old_message(factory: Factory, tmp_path: Path) -> None:
    """Any login can announce an id, as often as it likes."""
    old = die(factory)
    factory.sql("UPDATE pillarbox.archive SET finished = finished - interval '1 hour'")
    async with watching(factory, tmp_path) as watch:
        await until(lambda: listening(factory), "it to listen")
        for _ in range(3):
            factory.sql(f"NOTIFY dead_message, '{old}'")
        later = die(factory)
        assert (await watch.printed())["id"] == later


async def test_without_since_the_watch_begins_now(factory: Factory, tmp_path: Path) -> None:
    die(factory)
    async with watching(factory, tmp_path) as watch:
        await until(lambda: listening(factory), "it to listen")
        later = die(factory)
        assert (await watch.printed())["id"] == later


def listening(factory: Factory) -> bool:
    """Whether it has asked what the archive has, which it does after LISTEN."""
    found = factory.sql(
        """SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %(name)s
              AND state = 'idle' AND query LIKE '%%dead_letters%%'""",
        name=NAME,
    )
    return bool(found)
