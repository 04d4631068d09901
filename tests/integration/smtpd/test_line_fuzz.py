"""test_line_fuzz — random lines cause no fault of ours, no hang, and no leftovers

Owns: the long walk: `pytest tests/integration/smtpd/test_line_fuzz.py --lines 200000`; without the option a short one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from smtpd.connection.connection import Connection
from tests.fixtures.daemons.line_fuzz import Tally, session
from tests.fixtures.daemons.login import HASH
from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.database.factory import Factory

CLIENTS = 10
GROWTH = 40  # MiB of resident memory that all these sessions may leave; one that stays is 40 KiB


class Faults(logging.Handler):
    """The faults on our side; other events are too many to keep."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.events: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        self.events.append(f"{record.getMessage()} {getattr(record, 'fields', '')}")


@pytest.fixture
def faults() -> Iterator[Faults]:
    log = logging.getLogger("pillarbox")
    handler = Faults()
    log.addHandler(handler)
    log.propagate = False  # else pytest keeps a hundred thousand lines
    yield handler
    log.propagate = True
    log.removeHandler(handler)


@pytest.mark.slow
@pytest.mark.parametrize("pipelining", ["reject", "allow"])
async def test_random_lines_cause_no_fault(
    factory: Factory, faults: Faults, pytestconfig: pytest.Config, pipelining: str
) -> None:
    wanted = pytestconfig.getoption("--lines") // 2
    server: dict[str, Any] = {
        # So that a session goes on where a client would long have been shown out.
        "limits": {"softerrors": 10_000, "harderrors": 10_000, "junkcommands": 10_000},
        "phases": {"connect": {"unauthpipelining": pipelining}},
    }
    server["listeners"] = [{"address": "127.0.0.1", "port": 0, "xclient": {"networks": ["127.0.0.0/8"]}}]
    authentication = {"users": {"alice": HASH}, "tlsonly": False, "failures": {"delay": "1ms", "maxdelay": "2ms"}}
    relay = {"networks": ["127.0.0.0/8", "192.0.2.0/24"]}
    tally = Tally()

    async def client(number: int, port: int) -> None:
        random = Random(f"{pipelining}{number}")
        while tally.lines < wanted:
            await session(port, random, tally, polite=pipelining == "reject")

    settings: dict[str, Any] = {"server": server, "authentication": authentication, "relay": relay}
    async with serving(factory.uri, **settings) as port:
        before = resident()
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(client(number, port))
        # A password of a client that has left may still be hashed, which takes 64 MiB until it is done.
        await eventually(lambda: resident() - before < GROWTH, f"less than {GROWTH} MiB more than before")
        grown = resident() - before
        async with Dialogue(port) as after:
            assert (await after.submit(MESSAGE)).startswith("250 2.0.0")
    sys.stderr.write(f"{tally.lines} lines, {tally.sessions} sessions, {grown} MiB, {sorted(tally.codes.items())}\n")
    assert faults.events == []
    assert b"451" not in tally.codes
    assert {b"220", b"250", b"354", b"500", b"501", b"503"} <= set(tally.codes)
    gc.collect()
    assert not any(isinstance(each, Connection) for each in gc.get_objects())


def resident() -> int:
    """The memory of this process now, in MiB; at times 64 more, while a password is hashed."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20
