"""test_doctor — `pillarbox doctor` from the command line, on a system configured like the demo

Owns: a clean bill for a fresh demo, the exit status, `--json`, and that nothing is started.
See: scripts/doctor/command.py; test_faults.py and test_workers.py for each fault.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor.checks import CHECKS, Finding, Severity
from queued.signing.keys import new_key
from scripts.commands import up
from scripts.config_files import load_both
from scripts.daemons import Daemons
from scripts.demo import command as demo
from scripts.demo import sample_mail
from scripts.demo.ledger import Ledger
from scripts.doctor import command as doctor
from scripts.sink.server import Sink
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.servers.postgres import temporary_var
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory


async def ask(config: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output, standard error."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", "doctor", "--config", str(config), *arguments),
        cwd=ROOT,
        env={"COLUMNS": "200", "PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def report(config: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit status and the JSON object."""
    status, out, err = await ask(config, "--json", *arguments)
    assert err == ""
    printed: dict[str, Any] = json.loads(out)
    return status, printed


def as_demo(folder: Path, uri: str, port: int) -> Path:
    """The demo's own files, on this database."""
    for name, text in (("smtpd", demo._SMTPD), ("queued", demo._QUEUED)):
        written = text.format(var=folder, port=port).replace('"embedded:"', json.dumps(uri))
        (folder / f"{name}.yaml").write_text(written)
    return folder


async def test_a_fresh_demo_is_healthy_and_a_stopped_one_with_mail_is_not(
    database: str, factory: Factory, tmp_path: Path
) -> None:
    ledger = Ledger()
    async with Sink() as sink, Daemons() as supervisor:
        folder = as_demo(tmp_path, database, sink.port)
        children = up.children(folder, load_both(folder)[1], logs=folder)
        for child in children:
            await supervisor.start(child)
        await eventually(lambda: factory.one("SELECT count(*) = 3 FROM pillarbox.workers"), "three workers signed on")
        samples = iter(list(sample_mail.made_up(20, 1)))
        await demo._session(children[0], samples, ledger, _Quiet())  # type: ignore[arg-type]  # its output is not used
        await eventually(lambda: factory.one("SELECT count(*) = 0 FROM pillarbox.queue"), "all mail is delivered")
        status, printed = await report(folder)
        assert [f for f in printed["findings"] if f["verdict"] in {"warn", "alarm"}] == []
        assert status == 0
        assert {f["check"] for f in printed["findings"]} == set(CHECKS) - {"disk.var"}
    factory.row(partid="1")
    status, printed = await report(folder, "--offline")
    assert status == 1
    assert printed["verdict"] == "alarm"
    assert [f["check"] for f in printed["findings"] if f["verdict"] == "alarm"] == ["partition.waiting"]


class _Quiet:
    """A face that says nothing."""

    submitted = 0

    def refused(self, sender: str, recipient: str, reply: str) -> None:
        """The demo's mail is never refused."""
        raise AssertionError(f"{sender} → {recipient}: {reply}")


async def test_the_table_names_check_verdict_and_remedy(database: str, tmp_path: Path) -> None:
    status, out, _ = await ask(as_demo(tmp_path, database, 9), "--offline", "--all")
    assert status == 0
    assert "partition.served" in out
    assert "start worker queued-12, queued-34, queued-56: `pillarbox up` or systemctl start" in out
    assert out.splitlines()[-1].endswith("4 warn, 0 alarm")


async def test_an_embedded_server_that_does_not_run_is_not_started() -> None:
    with temporary_var() as var:
        status, printed = await report(as_demo(var, "embedded:", 9), "--offline")
        assert status == 1
        [alarm] = [finding for finding in printed["findings"] if finding["verdict"] == "alarm"]
        assert alarm["check"] == "server.reached"
        assert alarm["found"].startswith("no PostgreSQL runs under")
        assert "`pillarbox database start`" in alarm["found"]
        assert embedded.status(var) is None


@pytest.mark.slow
async def test_a_database_is_checked_without_and_with_our_schema_and_its_disk() -> None:
    with temporary_var() as var:
        folder = as_demo(var, "embedded:", 9)
        embedded.ensure_running(var)
        status, printed = await report(folder, "--offline")
        assert status == 1
        assert [f["check"] for f in printed["findings"] if f["verdict"] == "alarm"] == ["schema.version"]
        assert "disk.var" in {f["check"] for f in printed["findings"]}


async def test_without_postgresql_the_other_checks_run(tmp_path: Path) -> None:
    async with Sink() as sink:
        status, printed = await report(as_demo(tmp_path, "postgresql://127.0.0.1:1/none", sink.port))
    assert status == 1
    first, *rest = printed["findings"]
    assert (first["check"], first["verdict"]) == ("server.reached", "alarm")
    assert first["found"].startswith("PostgreSQL is unavailable")
    assert {"transport.reached", "host.dns", "tls.certificates", "retry.windows"} <= {each["check"] for each in rest}
    assert all(each["verdict"] != "alarm" for each in rest)


async def test_without_dns_the_other_checks_run(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        folder = as_demo(tmp_path, "postgresql://127.0.0.1:1/none", 9)
        (folder / "key.pem").write_bytes(new_key(ed25519=True).pem())
        key = f"{{selector: s, file: {folder / 'key.pem'}}}"
        servers = f"['127.0.0.1:{silent.getsockname()[1]}']"
        with (folder / "queued.yaml").open("a") as queued:
            queued.write(f"\nrouting: {{dns: {{servers: {servers}, timeout: 1s}}}}\n")
            queued.write(f"signing: {{rules: [{{id: r, senderdomain: [a.example], keys: [{key}]}}]}}\n")
        status, printed = await report(folder)
    assert status == 1
    found = {each["check"]: each for each in printed["findings"]}
    assert found["host.dns"]["found"].startswith("DNS does not answer for ")
    assert {found[check]["verdict"] for check in ("domain.spf", "domain.dkim", "domain.dmarc")} == {"note"}
    assert found["domain.dkim"]["found"] == "DNS does not answer about s._domainkey.a.example"


def test_findings_are_not_interpreted_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.show([Finding("mail.dead", Severity.NOTE, "[bold]x[/bold] [0]")])
    assert "[bold]x[/bold] [0]" in capsys.readouterr().out


def test_faults_are_listed_first_and_passed_checks_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    findings = [
        Finding("mail.dead", Severity.WARN, "many", "read them"),
        *(Finding(check, Severity.OK, "fine") for check in ("mail.lease", "disk.var")),
    ]
    doctor.show(findings)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["verdict", "check", "found,", "and", "what", "to", "do"],
        ["warn", "mail.dead", "many"],
        ["→", "read", "them"],
        ["--all", "lists", "what", "is", "ok:", "2", "ok,", "0", "note,", "1", "warn,", "0", "alarm"],
    ]
    doctor.show(findings, everything=True)
    assert "mail.lease" in capsys.readouterr().out
