"""test_up_without_next_hop — the first hour: `pillarbox up --sink` as configured by nothing but defaults

Owns: its output, the sink and its mail, doctor, a second `up`, and mail around the death of its PostgreSQL.
See: scripts/commands/up.py, scripts/up/.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from shared.mail.partition import partition_id
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.running_up import Up
from tests.fixtures.daemons.submit import Client, numbered
from tests.fixtures.daemons.system import FAULTS, ROOT
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from scripts.demo.sample_mail import Sample

LINE = re.compile(r"^\S+Z (\w+) (\S+)", re.MULTILINE)
END = re.compile(r"^submit to 127\.0\.0\.1:(\d+), look with pillarbox queue list$", re.MULTILINE)


async def pillarbox(folder: Path, *words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", *words, "--config", str(folder)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def taken(folder: Path, count: int) -> list[dict[str, object]]:
    """The sink's mail, once there is so much."""
    place = folder / "var" / "sink"
    await eventually(lambda: len(list(place.glob("*.json"))) >= count, f"the sink has {count} messages")
    status, out, _ = await pillarbox(folder, "sink", "show", "--json")
    assert status == 0
    return [json.loads(line) for line in out.splitlines()]


async def accepted(port: int, sample: Sample) -> str:
    """The reply 250, "" for another one."""
    client = await Client.open(("127.0.0.1", port))
    [reply] = await client.send(sample)
    await client.close()
    return reply if reply.startswith("250") else ""


def configured(folder: Path) -> None:
    """The defaults, on a free port, under this folder, and with a worker that leaves two partitions out."""
    environment = {"database": {"uri": "embedded:"}, "var": str(folder / "var")}
    smtpd = {"environment": environment, "servers": [{"hostname": "mx.test", "listeners": [{"port": 0}]}]}
    workers = [{"id": "some", "where": "metadata->>'_partid' IN ('1','2','3','4','6')"}]
    (folder / "smtpd.yaml").write_text(json.dumps(smtpd))
    (folder / "queued.yaml").write_text(json.dumps({"environment": environment, "workers": workers}))


@pytest.mark.slow
async def test_mail_goes_to_the_sink_and_a_killed_postgresql_is_restarted() -> None:
    with temporary_var() as folder:
        configured(folder)
        up = Up(folder)
        await up.start("--sink")
        try:
            port = await started(up)
            daemons = up.children()
            before, after = [s for s in numbered(9) if partition_id(s.recipients[0].rpartition("@")[2], 6) != "5"][:2]
            await goes_to_the_sink(folder, before, port)
            status, _, err = await pillarbox(folder, "up", "--sink")
            assert status == 69
            assert f"already runs over {folder / 'var'} (pid {up.running.pid}, since 20" in err
            await survives_postgresql(folder, up, after, port)
            recipients = [each["recipients"] for each in await taken(folder, 2)]
            assert recipients == [[before.recipients[0]], [after.recipients[0]]]
            assert up.children() == daemons, "no daemon died with it"
            await eventually(lambda: is_over(up.err.read_text()), "smtpd and the worker have it back")
        finally:
            assert await up.stop() == 0
        assert embedded.status(folder / "var") is None
        says_little_of_the_outage(up.err.read_text())
        status, out, _ = await pillarbox(folder, "sink", "show")
        assert status == 0
        assert "2 messages in" in out, "they outlive the sink"


async def started(up: Up) -> int:
    """The address to submit to, once printed, and the errors before."""
    await eventually(lambda: END.search(up.out.read_text()), "it says where to submit")
    found = END.search(up.out.read_text().splitlines()[-1])
    assert found, "and that is the last line"
    said = up.err.read_text()
    assert "WARNING: no next hop is configured (queued.yaml: connection.server of transport default)" in said
    assert "read it with pillarbox sink show" in said
    assert "WARNING: no worker serves partition 5, NULL: such mail waits" in said
    return int(found[1])


async def goes_to_the_sink(folder: Path, sample: Sample, port: int) -> None:
    reply = await accepted(port, sample)
    [first] = await taken(folder, 1)
    assert first["recipients"] == [sample.recipients[0]]
    assert str(first["message"]) in reply
    status, out, _ = await pillarbox(folder, "sink", "show", str(first["message"]))
    assert status == 0
    assert f"recipients  {sample.recipients[0]}" in out
    status, out, _ = await pillarbox(folder, "doctor", "--json")
    assert status == 1
    alarms = {finding["check"] for finding in json.loads(out)["findings"] if finding["verdict"] == "alarm"}
    assert alarms == {"transport.next_hop", "partition.served"}


async def survives_postgresql(folder: Path, up: Up, sample: Sample, port: int) -> None:
    running = embedded.status(folder / "var")
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    await eventually(lambda: "child.started name=postgresql" in up.err.read_text(), "PostgreSQL runs again")
    await eventually(lambda: accepted(port, sample), "mail is accepted again")


def is_over(log: str) -> bool:
    """Whether every loss of PostgreSQL so far has ended."""
    return 1 <= log.count(" error database.lost ") == log.count(" info database.back ")


def says_little_of_the_outage(log: str) -> None:
    """For smtpd and the worker a line each; a busy server may be too late once more, and be stopped meanwhile."""
    assert not FAULTS.search(log)
    loud = Counter(event for level, event in LINE.findall(log) if level in {"warning", "error"})
    assert set(loud) <= {"child.died", "database.lost", "daemon.privileged", "claim.leaf_in_part"}
    assert loud["child.died"] == 1
    assert 1 <= loud["database.lost"] <= 4
    assert 1 <= log.count(" info database.back ") <= loud["database.lost"]
