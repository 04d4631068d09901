"""command — `pillarbox doctor`: reports faults of the queue, its workers and its server, with remedies

Owns: the command line, the table, `--json` and the exit status.
Guarantees: nothing is changed, nothing is started and no mail is sent. Exit status 1 if, and only if, there is an
    alarm.
Raises: PillarboxError when the configuration cannot be read. A database that does not answer is a finding.
See: docs/reference/doctor.md for the checks; operate/doctor/checks.py for their limits.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
import socket
import sysconfig
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from operate.doctor import host, reach
from operate.doctor.certificates import certificates
from operate.doctor.checks import CHECKS, Finding, Limits, Severity, worst
from operate.doctor.examine import Look
from operate.doctor.logins import refused_by, secrets
from operate.doctor.next_hop import next_hop
from operate.doctor.python import build
from operate.doctor.server import disk
from operate.doctor.windows import windows
from scripts.config_files import load_both
from scripts.options import finish
from scripts.output import records
from scripts.output.table import Column, Table
from shared.errors import DatabaseUnavailable
from shared.host_name import own_name
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser("doctor", help="say what is wrong with queue, workers and server, and what to do")
    parser.add_argument("--all", action="store_true", help="list what is fine, too")
    parser.add_argument("--offline", action="store_true", help="contact no next hop and no name server")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Examine and report; 1 when there is an alarm."""
    smtpd, queued = load_both(options.config)
    findings = asyncio.run(examine(smtpd, queued, offline=options.offline))
    if options.json:
        records.one(_as_json(findings))
    else:
        show(findings, everything=options.all)
    return 1 if worst(findings) is Severity.ALARM else 0


async def examine(
    smtpd: SmtpdConfig, queued: QueuedConfig, limits: Limits | None = None, *, offline: bool = False
) -> list[Finding]:
    """Every finding, the gravest first, then in the order of the table of checks."""
    environment = smtpd.environment
    findings = await _database(smtpd, queued, limits)
    findings += certificates(smtpd.servers, datetime.now(UTC))
    findings += secrets(queued.transports)
    findings.append(next_hop(queued))
    findings.append(windows(queued.transports, datetime.now(UTC)))
    findings.append(host.name(smtpd, queued, socket.getfqdn(), own_name()))
    findings.append(build(platform.python_version(), sysconfig.get_config_vars()))
    if database.is_embedded(environment.database.uri) and environment.var.exists():
        usage = shutil.disk_usage(environment.var)
        findings.append(disk(usage.free, usage.total, limits or Limits()))
    if not offline:
        findings += await reach.reached(queued, refused_by(findings))
        findings.append(await reach.names(smtpd, queued))
    order = list(CHECKS)
    return sorted(findings, key=lambda finding: (-finding.verdict, order.index(finding.check)))


async def _database(smtpd: SmtpdConfig, queued: QueuedConfig, limits: Limits | None) -> list[Finding]:
    """The findings about the database; where it does not answer, that alone."""
    environment = smtpd.environment
    check = "server.reached"
    try:
        connection = await database.connect(_conninfo(environment.database.uri, environment.var), "pillarbox doctor")
        try:
            found = await Look(connection, smtpd, queued, limits).examine()
        finally:
            await connection.close()
    except DatabaseUnavailable as error:
        remedy = "start PostgreSQL, or correct environment.database.uri; then run doctor again"
        return [Finding(check, Severity.ALARM, f"{error}; nothing in it was examined", remedy)]
    return [Finding(check, Severity.OK, "PostgreSQL answers"), *found]


def show(findings: Sequence[Finding], *, everything: bool = False) -> None:
    """What is wrong with its remedies, the gravest first; then how many checks are fine."""
    rows = []
    for finding in findings:
        if finding.verdict or everything:
            rows.append((finding.verdict.name.lower(), finding.check, finding.found))
            rows += [(" ", " ", f"→ {finding.remedy}")] if finding.remedy else []
    Table((Column("verdict"), Column("check"), Column("found, and what to do", wraps=True))).print(rows)
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Severity}
    hint = "" if everything or not counts[Severity.OK] else "--all lists what is ok: "
    print(hint + ", ".join(f"{count} {verdict.name.lower()}" for verdict, count in counts.items()))


def _as_json(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "verdict": worst(findings).name.lower(),
        "findings": [
            {"check": f.check, "verdict": f.verdict.name.lower(), "found": f.found, "remedy": f.remedy}
            for f in findings
        ],
    }


def _conninfo(uri: str, var: Path) -> str:
    """As the daemons resolve it, but an embedded server that does not run is not started."""
    found = database.resolve_running(uri, var)
    if found is None:
        raise DatabaseUnavailable(
            f"no PostgreSQL runs under {var}: start it with `pillarbox up` or `pillarbox database start`"
        )
    return found
