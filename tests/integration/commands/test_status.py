"""test_status — `pillarbox status` shows daemons, flow, queue and trouble on one screen"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from scripts import cli
from scripts.output import table
from scripts.sink.server import Sink
from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

NONE = 1  # a port where nothing listens


@pytest.fixture
def status(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox status` on the test's own database."""
    servers = [{"id": "relay", "listeners": [{"port": NONE}, {"address": "127.0.0.1", "port": 65535}]}]
    return Pillarbox(write_config(tmp_path / "config", database, servers=servers), capsys, "status")


def test_the_status_screen_shows_every_part(
    factory: Factory, status: Pillarbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory.rows(2)
    factory.rows(3, status="HOLD", received=datetime.now(UTC) - timedelta(hours=3))
    factory.rows(1, received=datetime.now(UTC) - timedelta(minutes=3), due=timedelta(hours=1), tries=1)
    factory.sql(
        """INSERT INTO pillarbox.workers (worker, id, host, pid, where_condition, started, seen, beat, lease, poll)
           VALUES ('w1@h:1', 'w1', 'h', 1, 'true', now(), now(), '10s', '1m', '10s'),
                  ('w2@h:2', 'w2', 'h', 2, 'true', now(), now() - interval '2 hours', '10s', '1m', '10s')"""
    )
    factory.sql(
        """INSERT INTO pillarbox.daemons
           SELECT id || '@h:' || pid, kind, id, '1.2', 'h', pid, session_user, now() - silent - interval '1m',
                  now() - silent, '10s', counts,
                  counts, counts, '{0,0,0}', '{}', '{}', '{}', '{}'
             FROM (VALUES ('smtpd', 'smtpd', 5, '0s'::interval, '{0,0,9}'::bigint[]),
                          ('queued', 'w1', 1, '0s', '{0,0,1}'),
                          ('queued', 'w1', 0, '3h', '{0,0,7}'), ('queued', 'w2', 0, '3h', '{0,0,0}'),
                          ('queued', 'w2', 2, '2h', '{0,0,0}')) AS d (kind, id, pid, silent, counts)"""
    )
    factory.sql(
        """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                           recipientdomain, size, outcome, scope, duration)
           SELECT now() - ago, 1, gen_random_uuid(), 1, 1, 'w1@h:1', 'default', 'example.com', 1, 'delivered',
                  'recipient', '1s' FROM unnest(ARRAY['10s', '2m', '20m']::interval[]) AS ago"""
    )
    monkeypatch.setattr(table, "terminal_width", lambda: 80)
    monkeypatch.setenv("NO_COLOR", "1")
    lines = status.run().splitlines()
    assert len(lines) <= 40
    words = {tuple(line.split()) for line in lines}
    assert {("accepted", "2", "3", "10"), ("delivered", "1", "2", "10"), ("failed", "0", "0", "0")} <= words
    assert ("HOLD", "3", "3h", "ago") in words
    assert "queue: 6 recipients" in lines
    [w1], [w2] = ([line for line in lines if line.startswith(f"{name} ")] for name in ("w1", "w2"))
    assert "alive since" in w1
    assert "silent for 2h" in w2, "the last start that is known"
    assert any(line.startswith("smtpd ") and line.endswith("does not answer on this host") for line in lines)
    assert any(line.startswith("smtpd ") and "1.2, alive since" in line for line in lines)
    assert not any("…" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("warn") and "w2@h:2 has been silent for 2h" in line for line in lines)

    answer = json.loads(status.run("--json"))
    assert answer["accepted"] == {"one": 2, "five": 3, "fifteen": 10, "more": False}
    assert answer["attempts"]["delivered"] == {"one": 1, "five": 2, "fifteen": 10, "more": False}
    assert [each["live"] for each in answer["daemons"] if each["kind"] == "smtpd"] == [True]
    assert answer["states"]["HOLD"]["recipients"] == 3
    assert [worker["live"] for worker in answer["workers"]].count(True) == 1
    assert "worker.live" in {finding["check"] for finding in answer["trouble"]}
    assert status.status == 0


async def test_a_listener_that_accepts_connections_is_alive(
    database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with Sink() as sink:
        servers = [{"id": "relay", "listeners": [{"address": "0.0.0.0", "port": sink.port}, {"port": NONE}]}]  # noqa: S104
        status = Pillarbox(write_config(tmp_path / "config", database, servers=servers), capsys, "status")
        answer = await asyncio.to_thread(status.json)
    assert answer["listeners"] == [
        {"address": f"0.0.0.0:{sink.port}", "accepts": True},
        {"address": f"127.0.0.1:{NONE}", "accepts": False},
    ]


def test_the_exit_status_is_1_at_an_alarm(factory: Factory, status: Pillarbox) -> None:
    factory.row()
    status.run()
    assert status.status == 1
    assert "partition.waiting" in status.said


def test_without_a_database_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "config", "postgresql://127.0.0.1:1/none")
    assert cli.main(["status", "--config", str(config)]) == 69
    assert capsys.readouterr().err.startswith("pillarbox: PostgreSQL is unavailable")
