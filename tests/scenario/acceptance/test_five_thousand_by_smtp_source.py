"""test_five_thousand_by_smtp_source — the counts of Postfix's smtp-source and smtp-sink agree with our history

Owns: 5,000 messages to ten domains, through smtpd and three workers with disjoint conditions, between two independent
    programs.
See: smtp-source(1), smtp-sink(1); tests/fixtures/peers/peers.py.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from shared.mail.partition import partition_id
from tests.fixtures.daemons.submit import DOMAINS
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.daemons.system import System

MESSAGES_A_DOMAIN = 500
TARGETS = (*DOMAINS, "rowan.example")
WORKERS = {
    "queued-12": "metadata->>'_partid' IN ('1', '2')",
    "queued-34": "metadata->>'_partid' IN ('3', '4')",
    "queued-56": "metadata->>'_partid' IN ('5', '6') OR metadata->>'_partid' IS NULL",
}
MESG = re.compile(rb"mesg=(\d+)\r")


class Counters:
    """smtp-sink's running count of accepted messages."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.taken = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while block := await stream.read(65536):
            rest += block
            for match in MESG.finditer(rest):
                self.taken = int(match[1])
            rest = rest[-100:]


@asynccontextmanager
async def run_smtp_sink(program: Path) -> AsyncIterator[Counters]:
    """smtp-sink on a free port, with its counters read continuously."""
    counters = Counters(free_port())
    account = ("-u", "nobody") if os.geteuid() == 0 else ()
    sink = await asyncio.create_subprocess_exec(
        program, *account, "-c", f"127.0.0.1:{counters.port}", "1000", stdout=asyncio.subprocess.PIPE
    )
    assert sink.stdout
    reading = asyncio.create_task(counters.read(sink.stdout))

    async def welcome() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", counters.port)
        except ConnectionError:
            assert sink.returncode is None, "smtp-sink ended"
            return False
        writer.close()
        await writer.wait_closed()
        return True

    try:
        await eventually(welcome, "smtp-sink takes connections")
        yield counters
    finally:
        sink.terminate()
        await sink.wait()
        await reading


async def run_smtp_source(program: Path, address: tuple[str, int], domain: str) -> None:
    """500 messages of 1,024 octets to numbered recipients of this domain, over 20 reused sessions."""
    source = await asyncio.create_subprocess_exec(
        program,
        *("-s", "20", "-m", str(MESSAGES_A_DOMAIN), "-l", "1024", "-d", "-N", "-M", "source.example"),
        *("-f", "load@origin.example", "-t", f"load@{domain}"),
        f"{address[0]}:{address[1]}",
    )
    async with asyncio.timeout(120):
        assert await source.wait() == 0


@pytest.mark.slow
async def test_every_message_of_smtp_source_reaches_smtp_sink_once(
    system: System, smtp_source: Path, smtp_sink: Path
) -> None:
    assert {partition_id(domain, 6) for domain in TARGETS} == set("123456"), "every worker must have mail"
    expected = MESSAGES_A_DOMAIN * len(TARGETS)
    async with run_smtp_sink(smtp_sink) as sink:
        smtpd = await system.smtpd()
        for name, where in WORKERS.items():
            await system.worker(sink.port, name, where)
        for domain in TARGETS:
            await run_smtp_source(smtp_source, smtpd.address, domain)
        await system.until_finished()
        await eventually(lambda: sink.taken >= expected, f"smtp-sink has {expected}, at last {sink.taken}")
        assert sink.taken == expected == 5000
    recipients = "SELECT count(*), count(DISTINCT (recipientlocalpart, recipientdomain)) FROM archive"
    assert await system.rows(recipients) == [(expected, expected)]
    assert await system.rows("SELECT DISTINCT result FROM archive") == [("success",)]
    assert await system.value("SELECT count(*) FROM attempts") == expected
    owned = await system.rows(
        "SELECT split_part(worker, '@', 1), array_agg(DISTINCT metadata->>'_partid') FROM archive GROUP BY 1"
    )
    assert {name: set(partids) for name, partids in owned} == {
        "queued-12": {"1", "2"},
        "queued-34": {"3", "4"},
        "queued-56": {"5", "6"},
    }
