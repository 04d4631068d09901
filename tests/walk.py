"""walk — `python -m tests.walk`: the files that one message passes, to its 250 and to its recorded result

Owns: the two counts that docs/explanation/architecture.md promises to keep short.
Guarantees: a real message, a real PostgreSQL and a real next hop; a file counts if one of its functions runs between
    the final dot and the 250, or from the claim to the recorded result, for any purpose.
See: sys.monitoring.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.sink.server import Sink
from shared.postgres import database
from shared.postgres.embedded import embedded
from shared.postgres.migrate import migrate
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType

_ROOT = Path(__file__).resolve().parents[1]
_OURS = tuple(f"{_ROOT}/{package}/" for package in ("smtpd", "queued", "shared"))
_TOOL = 3  # of sys.monitoring, a free tool id


@contextmanager
def watched(walk: dict[str, None]) -> Iterator[None]:
    """Write down, in order, each file of ours of which a function begins or goes on in this block."""

    def begun(code: CodeType, _: int) -> None:
        if code.co_filename.startswith(_OURS):
            walk.setdefault(code.co_filename.removeprefix(f"{_ROOT}/"))

    events = sys.monitoring.events.PY_START | sys.monitoring.events.PY_RESUME
    sys.monitoring.use_tool_id(_TOOL, "walk")
    sys.monitoring.register_callback(_TOOL, sys.monitoring.events.PY_START, begun)
    sys.monitoring.register_callback(_TOOL, sys.monitoring.events.PY_RESUME, begun)
    sys.monitoring.set_events(_TOOL, events)
    try:
        yield
    finally:
        sys.monitoring.set_events(_TOOL, 0)
        sys.monitoring.free_tool_id(_TOOL)


async def acceptance(uri: str) -> dict[str, None]:
    """The files between the final dot and its 250."""
    walk: dict[str, None] = {}
    async with serving(uri) as port, Dialogue(port) as client:
        for number in range(2):  # the first one warms caches
            await client.ask(b"MAIL FROM:<a@sender.example>")
            await client.ask(b"RCPT TO:<b@example.com>")
            await client.ask(b"DATA")
            await client.send(b"Subject: walk\r\n\r\nbody\r\n")
            await asyncio.sleep(0.1)
            with watched(walk if number else {}):
                reply = await client.ask(b".")
            assert reply.startswith("250"), reply
    return walk


async def delivery(uri: str) -> dict[str, None]:
    """The files from the claim of two messages to their recorded results."""
    walk: dict[str, None] = {}
    async with Sink() as sink:
        with watched(walk):
            async with dispatching(uri, sink.port, timedelta(minutes=1), beats=False) as dispatcher:
                connection = await database.connect(uri, "walk")
                walk.clear()  # building is over

                async def recorded() -> bool:
                    found = await connection.execute("SELECT count(*) = 2 FROM pillarbox.archive")
                    return bool((await found.fetchone() or [False])[0])

                await eventually(recorded, "both to be recorded")
                await connection.close()
                assert not dispatcher.inflight
    return walk


def main() -> int:
    """Print both walks."""
    with temporary_var() as var:
        uri = embedded.ensure_running(var)
        migrate(uri, {"123": ["1", "2", "3"], "456": ["4", "5", "6", "NULL"]})
        for name, walk in (("acceptance", asyncio.run(acceptance(uri))), ("delivery", asyncio.run(delivery(uri)))):
            print(f"{name}: {len(walk)} files")
            for number, file in enumerate(walk, 1):
                print(f"  {number:2}  {file}")
        embedded.stop(var)
    return 0


if __name__ == "__main__":
    sys.exit(main())
