"""test_collect_csv — `pillarbox collect --csv` does what mailroom's collector does, and none of its faults

See: https://github.com/tetsuo/mailroom; sql/accounts/README.md, "Collecting".
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import pytest

from shared.security.account_token import verify
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.accounts import Accounts

_KEY = "cafebabe" * 8
_FOREVER = "3600000"  # a batch timeout that no test reaches
_HAS_COUNTED = """SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database()
                     AND application_name = 'pillarbox collect' AND state = 'idle' AND query LIKE '%AS waiting FROM%'"""


class Lines:
    """A running collector and the lines it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.batches: list[list[list[str]]] = []

    async def ready(self) -> Self:
        """Wait until it listens."""
        await self.said("daemon.started")
        return self

    async def said(self, event: str, count: int = 1) -> None:
        """Wait until its log has this event so often."""

        def has_said() -> bool:
            assert self.process.returncode is None, self.log.read_text()
            return self.log.read_text().count(event) >= count

        await eventually(has_said, f"{event} {count} times")

    async def batch(self) -> list[list[str]]:
        """The next line: its tokens, each a list of five values."""
        assert self.process.stdout
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode()
        assert line.endswith("\n"), self.log.read_text()
        values = line.removesuffix("\n").split(",")
        assert len(values) % 5 == 0
        self.batches.append([values[place : place + 5] for place in range(0, len(values), 5)])
        return self.batches[-1]

    async def stop(self) -> int:
        """SIGTERM, and its exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def collecting(accounts: Accounts, folder: Path, name: str = "log", **variables: str) -> AsyncIterator[Lines]:
    """A collector with these of mailroom's variables."""
    environ = {"MAILROOM_DATABASE_URL": accounts.uri, "MAILROOM_SECRET_KEY": _KEY, **variables}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MAILROOM_")}
    log = folder / name
    with log.open("wb") as written:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scripts.cli", "collect", "--csv"),
            cwd=ROOT,
            env={**kept, **environ},
            stdout=asyncio.subprocess.PIPE,
            stderr=written,
        )
    lines = Lines(process, log)
    try:
        yield await lines.ready()
    finally:
        assert await lines.stop() == 0, log.read_text()


async def test_a_line_is_mailroom_s_octet_for_octet(accounts: Accounts, tmp_path: Path) -> None:
    accounts.add("first")
    accounts.add_active("second")
    accounts.sql("SELECT request_recovery('second@example.com')")
    async with collecting(accounts, tmp_path) as lines:
        batch = await lines.batch()
    rows = accounts.sql(
        """SELECT action::text, email, a.login, secret, code FROM tokens t JOIN accounts a ON a.id = t.account
            WHERE consumed_at IS NULL ORDER BY action DESC"""
    )
    assert [values[:3] for values in batch] == [
        ["2", "second@example.com", "second"],
        ["1", "first@example.com", "first"],
    ], "recovery comes first"
    for values, row in zip(batch, rows, strict=True):
        path = "/activate" if row.action == "activation" else "/recover"
        assert re.fullmatch(r"[A-Za-z0-9_-]{86}", values[3])
        found = verify({"k": bytes.fromhex(_KEY)}, path, values[3], values[4])
        assert found is not None
        assert (found.secret, values[4]) == (bytes(row.secret), row.code)
    assert accounts.one("SELECT count(*) FROM tokens WHERE collected_at IS NULL AND consumed_at IS NULL") == 0


async def test_a_full_batch_goes_at_once_and_the_rest_waits_until_it_is_full(
    accounts: Accounts, tmp_path: Path
) -> None:
    variables = {"MAILROOM_BATCH_TIMEOUT": _FOREVER, "MAILROOM_HEALTHCHECK_INTERVAL": _FOREVER}
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_LIMIT="3", **variables) as lines:
        # Until it has counted what waits, it would take these for tokens from before its start.
        await eventually(lambda: accounts.one(_HAS_COUNTED), "it counts what waits")
        with accounts.connection.transaction():  # one notification for all of them, which mailroom counts as one
            for number in range(5):
                accounts.add(f"user{number}")
        assert len(await lines.batch()) == 3
        accounts.add("user5")
        assert len(await lines.batch()) == 3, "two had waited"


async def test_the_rest_of_a_batch_goes_with_the_timeout(accounts: Accounts, tmp_path: Path) -> None:
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_LIMIT="3", MAILROOM_BATCH_TIMEOUT="300") as lines:
        with accounts.connection.transaction():
            for number in range(5):
                accounts.add(f"user{number}")
        assert [len(await lines.batch()) for _ in range(2)] == [3, 2]


async def test_what_waits_at_the_start_is_drained_at_once(accounts: Accounts, tmp_path: Path) -> None:
    for number in range(5):
        accounts.add(f"user{number}")
    variables = {"MAILROOM_BATCH_TIMEOUT": _FOREVER, "MAILROOM_HEALTHCHECK_INTERVAL": _FOREVER}
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_LIMIT="2", **variables) as lines:
        assert [len(await lines.batch()) for _ in range(3)] == [2, 2, 1]


async def test_a_token_that_is_committed_late_is_not_passed_over(accounts: Accounts, tmp_path: Path) -> None:
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_TIMEOUT="0") as lines:
        with accounts.session() as late, late.transaction():
            late.execute("INSERT INTO accounts (email, login) VALUES ('late@example.com', 'late')")
            accounts.add("early")
            assert [values[2] for values in await lines.batch()] == ["early"]
        assert [values[2] for values in await lines.batch()] == ["late"]
    assert accounts.one("SELECT array_agg(login ORDER BY t.id) FROM tokens t JOIN accounts a ON a.id = account") == [
        "late",
        "early",
    ]


async def test_suspended_ones_are_skipped_and_sent_after_unsuspend_if_still_valid(
    accounts: Accounts, tmp_path: Path
) -> None:
    for name in ("kept", "expired", "other"):
        accounts.add(name)
    accounts.sql("UPDATE accounts SET status = 'suspended' WHERE login <> 'other'")
    accounts.sql(
        """UPDATE tokens SET expires_at = 1
            WHERE account = (SELECT id FROM accounts WHERE login = 'expired')"""
    )
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_TIMEOUT="0") as lines:
        assert [values[2] for values in await lines.batch()] == ["other"]
        accounts.sql("UPDATE accounts SET status = 'active' WHERE login <> 'other'")
        assert [values[2] for values in await lines.batch()] == ["kept"]
        accounts.add("next")
        assert [values[2] for values in await lines.batch()] == ["next"], "the expired one is not sent"


async def test_cut_connections_neither_skip_nor_repeat(accounts: Accounts, tmp_path: Path) -> None:
    async with collecting(accounts, tmp_path, MAILROOM_BATCH_TIMEOUT="0") as lines:
        accounts.add("before")
        await lines.batch()
        # A line is printed before its COMMIT: cut before that, it would be printed again.
        await eventually(lambda: accounts.one("SELECT collected_at IS NOT NULL FROM tokens"), "its COMMIT is done")
        accounts.sql(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
        )
        accounts.add("meanwhile")
        assert [values[2] for values in await lines.batch()] == ["meanwhile"]
        await lines.said("database.lost")  # by whichever of its two connections noticed it first
        accounts.add("after")
        assert [values[2] for values in await lines.batch()] == ["after"]


async def test_several_collectors_share_the_tokens(accounts: Accounts, tmp_path: Path) -> None:
    settings = {"MAILROOM_BATCH_TIMEOUT": "0", "MAILROOM_BATCH_LIMIT": "5"}
    async with (
        collecting(accounts, tmp_path, "one", **settings) as one,
        collecting(accounts, tmp_path, "two", **settings) as two,
    ):
        with accounts.connection.transaction():
            accounts.sql(
                """INSERT INTO accounts (email, login)
                   SELECT 'user' || n || '@example.com', 'user' || n FROM generate_series(1, 300) AS n"""
            )
        await eventually(
            lambda: accounts.one("SELECT count(*) = 0 FROM tokens WHERE collected_at IS NULL"), "all are collected"
        )
        assert await one.stop() == await two.stop() == 0
        logins = [login for each in (one, two) for login in await rest(each)]
    assert sorted(logins) == sorted(f"user{number}" for number in range(1, 301))


async def test_a_collector_killed_before_commit_prints_the_line_again(accounts: Accounts, tmp_path: Path) -> None:
    accounts.add("again")
    kill = {"PILLARBOX_FAIL": "collect.before_commit:kill"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "collect", "--csv"),
        cwd=ROOT,
        env={**os.environ, "MAILROOM_DATABASE_URL": accounts.uri, "MAILROOM_SECRET_KEY": _KEY, **kill},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(PATIENCE):
        printed, _ = await process.communicate()
    assert process.returncode == -signal.SIGKILL
    async with collecting(accounts, tmp_path) as lines:
        [values] = await lines.batch()
    assert ",".join(values) + "\n" == printed.decode()


async def test_a_reader_that_ends_loses_no_token(accounts: Accounts, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as written:
        reading, writing = os.pipe()
        os.close(reading)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "collect", "--csv"),
            cwd=ROOT,
            env={**os.environ, "MAILROOM_DATABASE_URL": accounts.uri, "MAILROOM_SECRET_KEY": _KEY},
            stdout=writing,
            stderr=written,
        )
        os.close(writing)
    await eventually(lambda: "daemon.started" in log.read_text(), "it runs")
    accounts.add()
    async with asyncio.timeout(PATIENCE):
        assert await process.wait() == 70
    assert "the reader of standard output has ended" in log.read_text()
    assert accounts.one("SELECT collected_at IS NULL FROM tokens")


async def rest(lines: Lines) -> list[str]:
    """The logins of the lines that a collector has printed, to its end."""
    assert lines.process.stdout
    values = (await lines.process.stdout.read()).decode().replace("\n", ",").split(",")
    return values[2::5]


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"MAILROOM_SECRET_KEY": ""}, "the environment variable MAILROOM_SECRET_KEY is not set"),
        ({"MAILROOM_SECRET_KEY": "cafe"}, "MAILROOM_SECRET_KEY: the key is not usable; allowed: 64 hexadecimal digits"),
        ({"MAILROOM_BATCH_LIMIT": "0"}, 'MAILROOM_BATCH_LIMIT: "0" is not a usable number'),
        ({"MAILROOM_BATCH_LIMIT": "9" * 5000}, f'MAILROOM_BATCH_LIMIT: "{"9" * 59}…" is not a usable number'),
        ({"MAILROOM_BATCH_TIMEOUT": "x"}, 'MAILROOM_BATCH_TIMEOUT: "x" is not a usable number'),
        ({"MAILROOM_HEALTHCHECK_INTERVAL": "10"}, "10 is less than MAILROOM_BATCH_TIMEOUT; allowed: 5000 or more"),
        ({"MAILROOM_QUEUE_NAME": "other"}, 'MAILROOM_QUEUE_NAME: "other" is unknown; allowed: mailroom'),
    ],
)
async def test_variables_that_cannot_be_used_are_one_line(variables: dict[str, str], said: str) -> None:
    environ: dict[str, Any] = {"MAILROOM_DATABASE_URL": "dbname=x", "MAILROOM_SECRET_KEY": _KEY, **variables}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "collect", "--csv"),
        cwd=ROOT,
        env={**os.environ, **environ},
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 78
    [line] = stderr.decode().splitlines()
    assert line.startswith("collect: ")
    assert said in line
