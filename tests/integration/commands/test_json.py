"""test_json — what commands print with --json has the forms that docs/reference/json.md documents

Owns: running every command of scripts/output/commands.py once on a database in which each finds something.
"""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from scripts import cli
from scripts.analytics.cleanup import command as cleanup
from scripts.analytics.cleanup.orphans import Orphans
from scripts.analytics.export import command as export
from scripts.output import records
from scripts.output.commands import COMMANDS
from scripts.sink import show
from scripts.sink.records import Received
from scripts.sink.store import Store
from shared.postgres.embedded import embedded
from shared.security.account_token import sign_bound
from tests.fixtures.database.operating import ROOT, write_config
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.http_peer import HttpPeer, verdict

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

#: Printed without running a command: Spark is started for tests/analytics only.
APART = {name for name in COMMANDS if name.startswith("analytics ")}
MAIL = "Subject: report\r\n\r\nbody\r\n"
NOTICE = {"to": ["desk@example.com"], "every": "1d"}
SECTIONS: dict[str, Any] = {
    "authentication": {"source": "table", "iterations": 4096},
    "quarantines": [{"id": "review", "retention": "1d", "notice": NOTICE}],
    "retention": {"default": "30d", "audit": "365d"},
}


def fits(command: str, said: str) -> list[Any]:
    """The objects that a command printed, each of one of its forms."""
    output = COMMANDS[command]
    lines = said.splitlines()
    assert output.lines or len(lines) == 1, (command, said)
    for line in lines:
        faults = []
        for form in output.forms:
            try:
                form.model_validate_json(line)
                break
            except ValidationError as error:
                faults.append(str(error))
        else:
            raise AssertionError(f"{command}: {line}: {faults}")
    return list(map(json.loads, lines))


class Runner:
    """Runs commands with --json, and notes which."""

    def __init__(self, config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.config, self._capsys, self._monkeypatch = config, capsys, monkeypatch
        self.ran: set[str] = set()

    def __call__(
        self, command: str, *words: str, status: int | None = 0, config: bool = True, stdin: str = "x\n"
    ) -> list[Any]:
        """Run `pillarbox COMMAND WORDS --json`; its objects, of which there is at least one. `status`: None is any."""
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        self._capsys.readouterr()
        where = ("--config", str(self.config)) if config else ()
        ended = cli.main([*command.split(), *words, "--json", *where])
        assert status in {None, ended}, self._capsys.readouterr().err
        found = fits(command, self._capsys.readouterr().out)
        assert found, f"{command} found nothing"
        self.ran.add(command)
        return found


@pytest.fixture
def run(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Runner:
    """Commands on the test's own database."""
    return Runner(write_config(tmp_path / "config", database, **SECTIONS), capsys, monkeypatch)


async def test_every_command_prints_its_forms(run: Runner, factory: Factory, tmp_path: Path) -> None:
    await asyncio.to_thread(accounts, run)
    await asyncio.to_thread(principals, run)
    await asyncio.to_thread(settings, run, factory.uri, tmp_path)
    await asyncio.to_thread(account_mail, run)
    await asyncio.to_thread(recovery, run, factory, tmp_path)
    await asyncio.to_thread(mail, run, factory, tmp_path)
    async with HttpPeer(verdict("no action", -1.5, symbols={"DKIM": {"score": -1.0}})) as peer:
        sections = {**SECTIONS, "policy": {"contentcheck": {"url": peer.url}}}
        write_config(run.config, factory.uri, **sections)
        hold(factory, "review")
        await asyncio.to_thread(run, "quarantine rescan", "--all")
        await asyncio.to_thread(run, "quarantine rescan", "--all", "--release", "--yes")
    # Watching ends with its reader; tests/integration/commands/test_watch_deadletters.py has it.
    assert run.ran | {"deadletters watch"} == set(COMMANDS) - APART


def accounts(run: Runner) -> None:
    """Commands about the tables of account mail."""
    assert run("accounts install", "--schema", "mailroom")[0]["applied"]
    [preview] = run("accounts remove", "--schema", "mailroom", "--dry-run")
    assert run("accounts remove", "--schema", "mailroom", "--yes") == [{**preview, "removed": True}]


def principals(run: Runner) -> None:
    """Commands about people and applications."""
    run("principal add", "ann", "--role", "reviewer")
    run("principal change", "ann", "--review", "review")
    run("principal list")
    run("web setup", "ann", "--url", "https://mail.example.com")
    [made] = run("key add", "ann", "--expires", "90d")
    run("key list")
    run("key revoke", made["prefix"])
    run("principal remove", "ann")


def suspends_and_hooks(run: Runner) -> None:
    """Commands about suspends and webhooks."""
    run("suspend add", "--jobid", "sale", "--for", "1h", "--reason", "wrong prices", "--dry-run")
    run("suspend add", "--jobid", "sale", "--for", "1h", "--reason", "wrong prices")
    run("suspend list")
    [removed] = run("suspend remove", "--all")
    run("queue undo", str(removed["audit"]), "--dry-run")
    run("queue undo", str(removed["audit"]), "--yes")
    run("webhooks add", "app", "https://127.0.0.1:9/hook")  # which is refused: no address of the public Internet
    run("webhooks list")
    run("webhooks test", "app", status=1)
    run("webhooks replay", "app", "--since", "1h")
    for verb in ("rotate", "disable", "enable", "remove"):
        run(f"webhooks {verb}", "app")


def schedules(run: Runner) -> None:
    """Commands about recurring and later mail."""
    words = ("--from", "a@example.com", "--to", "b@example.net")
    run("schedule add", "weekly", "--every", "0 9 * * mon", *words, stdin=MAIL)
    run("schedule add", "--at", "2099-01-01T09:00", *words, "--dry-run", stdin=MAIL)
    run("schedule add", "--at", "2099-01-01T09:00", *words, stdin=MAIL)
    run("schedule list")
    for verb in ("disable", "enable", "remove"):
        run(f"schedule {verb}", "weekly")


def settings(run: Runner, uri: str, tmp_path: Path) -> None:
    """Commands that are not about mail."""
    run("migrate")
    for verb in ("add", "passwd", "disable", "enable"):
        run(f"user {verb}", "anna")
    run("user list")
    run("user remove", "anna")
    run("user hash", "anna", config=False)
    file = tmp_path / "targets"
    file.write_text("bob@example.net\n")
    run("suppress add", "ann@example.com")
    run("suppress import", str(file))
    run("suppress list")
    run("suppress remove", "ann@example.com")
    schedules(run)
    suspends_and_hooks(run)
    run("volumes report", str(tmp_path), "--once")
    run("volumes list")
    run("volumes forget")
    run("policy check")
    run("policy test", "--client", "192.0.2.1", "--from", "a@example.com", "--to", "b@example.net", status=1)
    run("config show", "transports")
    run("rules test", "--reply", "450 4.2.0 no", status=1)
    run("dkim generate", "--domain", "example.com", "--selector", "s1", "--out", str(tmp_path), config=False)
    key = {"selector": "s1", "file": str(tmp_path / "example.com.s1.pem")}
    queued = run.config / "queued.yaml"
    before = queued.read_text()
    signing = {"rules": [{"id": "r", "senderdomain": ["signed.invalid"], "keys": [key]}]}
    queued.write_text(json.dumps({**json.loads(before), "signing": signing}))
    run("dkim check", status=1)
    queued.write_text(before)
    var = ("--var", str(tmp_path / "none"))
    run("database stop", *var, config=False)
    run("database status", *var, status=3, config=False)
    run("status", status=None)
    run("doctor", status=None)
    host = ("--hostname", "mail.example.com", "--direct", "--database", uri)
    run("init", str(tmp_path / "host"), *host, config=False)
    shipped = shutil.copytree(ROOT / "config", tmp_path / "shipped")
    run("relay", "smtp.example.com", "--user", "anna", "--config", str(shipped), config=False)
    taken(run, tmp_path)
    run("partitions show")
    run("partitions plan")
    run("partitions balance")
    run("partitions split", "def", "into", "seven=7", "--yes")
    run("partitions move", "7", "123", "--yes")
    run("partitions merge", "123", "456", "into", "123", "--yes")
    run("partitions apply", "--yes")


def account_mail(run: Runner) -> None:
    """Account mail."""
    key = {"id": "k", "file": str(run.config / "key")}
    (run.config / "key").write_text("cafebabe" * 8)
    (run.config / "key").chmod(0o600)
    (run.config / "collect.yaml").write_text(json.dumps({"keys": [key]}))
    run("accounts preview", "activation")
    run("accounts verify", sign_bound("k", bytes.fromhex("cafebabe" * 8), "/activate", bytes(32), 4_000_000_000))


def taken(run: Runner, tmp_path: Path) -> None:
    """The mail of a sink."""
    smtpd = run.config / "smtpd.yaml"
    configured = json.loads(smtpd.read_text())
    configured["environment"]["var"] = str(tmp_path / "var")
    smtpd.write_text(json.dumps(configured))
    Store(show.folder(tmp_path / "var")).add(
        Received(1.0, "a@example.com", ("b@example.net",), "", len(MAIL), answered=True, content=MAIL.encode())
    )
    run("sink show")
    run("sink show", "1")


def recovery(run: Runner, factory: Factory, tmp_path: Path) -> None:
    """A queue that was restored from a backup."""
    message = factory.message()
    factory.rows(2, message=message)
    file = tmp_path / "deliveries"
    file.write_text(f"{message} r1@example.com\n")
    run("recover show")
    run("recover begin", "--dry-run")
    run("recover begin", "--yes")
    run("recover show")
    run("recover settle", str(file), "--dry-run")
    run("recover settle", str(file), "--yes")
    run("recover release", "--dry-run")
    run("recover release", "--yes")


def mail(run: Runner, factory: Factory, tmp_path: Path) -> None:
    """Commands about mail."""
    ids = factory.rows(3, tries=1, due=timedelta(hours=1))
    factory.sql("UPDATE pillarbox.queue SET last_error = '451 later', jobid = 'sale' WHERE id = %(id)s", id=ids[0])
    run("queue list")
    run("queue group", "recipient,state")
    run("queue shape")
    run("queue top", "--times", "1")
    run("queue show", str(ids[0]))
    run("queue trace", str(ids[0]))
    for verb, *words in (("hold",), ("release",), ("retry",), ("delay", "--for", "1h"), ("priority", "--to", "3")):
        run(f"queue {verb}", "--all", *words, "--yes")
    run("queue hold", f"id={ids[0]}", "--dry-run")
    moved = run("queue move", "--all", "--partition", "2", "--yes")[0]["audit"]
    run("queue undo", str(moved), "--dry-run")
    run("queue undo", str(moved), "--yes")
    run("queue bounce", f"id={ids[0]}", "--yes")
    run("queue delete", f"id={ids[1]}", "--yes")
    run("queue audit")
    held = hold(factory, "review", count=4, reason="a new sender")
    run("quarantine list")
    run("quarantine list", "--all")
    run("quarantine show", str(held[0]))
    run("quarantine release", str(held[0]), "--yes")
    run("quarantine delete", str(held[1]), "--yes")
    run("quarantine export", "--all", "--to", str(tmp_path))
    run("quarantine digest", "--yes")
    run("retention", "--dry-run")
    run("retention", "--yes")
    dead = factory.row()
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue WHERE id = %(id)s RETURNING *)
           INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count, last_error)
           SELECT id, messages__id, actionid, now(), 'failed', ts, recipientlocalpart, recipientdomain, size,
                  transportid, priority, 3, '550 no' FROM gone""",
        id=dead,
    )
    run("deadletters list")
    run("deadletters show", str(dead))
    run("deadletters requeue", str(dead), "--dry-run")
    run("deadletters requeue", str(dead), "--yes")
    run("erase", "--no-lake", "joe@example.com", "--dry-run")
    run("erase", "--no-lake", "joe@example.com", "--yes")
    run.ran |= database_start(run, tmp_path)


def database_start(run: Runner, tmp_path: Path) -> set[str]:
    """The embedded server of the tests is started already: its URI is printed."""
    pretended = {"ensure_running": lambda var: f"postgresql:///pillarbox?host={var}"}
    with pytest.MonkeyPatch.context() as patch:
        for name, function in pretended.items():
            patch.setattr(embedded, name, function)
        run("database start", "--var", str(tmp_path), config=False)
    return {"database start"}


def test_analytics_print_their_forms(capsys: pytest.CaptureFixture[str]) -> None:
    made: Any = SimpleNamespace(table="attempts", day="2026-11-20", version=1, rows=5, quarantined={})
    made.fingerprint = SimpleNamespace(rows=5)
    export._show(export.ExportReport(exported=[made], refused=["why"]), as_json=True)
    fits("analytics export", capsys.readouterr().out)
    days = [cleanup.DayVerdict("archive", "2026-11-20", 5, "refused", "why")]
    found = cleanup.CleanupReport()
    found.days, found.orphans = days, Orphans(bodies=["01a208cb-b0c8-71f0-b3f8-1a42a9882dd1"], attempts=[3])
    cleanup._show(found, yes=False, as_json=True)
    fits("analytics cleanup", capsys.readouterr().out)
    records.one({"minute": "2026-11-20T07:00:00+00:00", "outcome": "failed", "attempts": 1, "seconds": 0.5})
    fits("analytics stream", capsys.readouterr().out)
