"""command — `pillarbox doctor`: reports faults of the queue, its workers and its server, with remedies

Owns: the command line, the table, `--json` and the exit status.
Guarantees: nothing is changed and nothing is started. Exit status 1 if, and only if, there is an alarm.
Raises: PillarboxError when the configuration cannot be read or PostgreSQL does not answer.
See: docs/reference/doctor.md for the checks; scripts/doctor/checks.py for their limits.
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
import socket
import sysconfig
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from scripts.config_files import load_both
from scripts.doctor import host
from scripts.doctor.certificates import certificates
from scripts.doctor.checks import CHECKS, Finding, Limits, Severity, worst
from scripts.doctor.examine import Look
from scripts.doctor.logins import secrets
from scripts.doctor.next_hop import next_hop
from scripts.doctor.python import build
from scripts.doctor.server import disk
from scripts.doctor.windows import windows
from scripts.options import add_config
from shared.errors import DatabaseUnavailable
from shared.host_name import own_name
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig

_STYLE = {Severity.OK: "green", Severity.NOTE: "cyan", Severity.WARN: "yellow", Severity.ALARM: "bold red"}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser("doctor", help="say what is wrong with queue, workers and server, and what to do")
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Examine and report; 1 when there is an alarm."""
    smtpd, queued = load_both(options.config)
    findings = asyncio.run(examine(smtpd, queued))
    if options.json:
        print(json.dumps(_as_json(findings), ensure_ascii=False))
    else:
        show(findings, Console())
    return 1 if worst(findings) is Severity.ALARM else 0


async def examine(smtpd: SmtpdConfig, queued: QueuedConfig, limits: Limits | None = None) -> list[Finding]:
    """Every finding, in the order of the table of checks."""
    environment = smtpd.environment
    connection = await database.connect(_conninfo(environment.database.uri, environment.var), "pillarbox doctor")
    try:
        findings = await Look(connection, smtpd, queued, limits).examine()
    finally:
        await connection.close()
    findings += certificates(smtpd.servers, datetime.now(UTC))
    findings += secrets(queued.transports)
    findings.append(next_hop(queued))
    findings.append(windows(queued.transports, datetime.now(UTC)))
    findings.append(host.name(smtpd, queued, socket.getfqdn(), own_name()))
    findings.append(build(platform.python_version(), sysconfig.get_config_vars()))
    if database.is_embedded(environment.database.uri):
        usage = shutil.disk_usage(environment.var)
        findings.append(disk(usage.free, usage.total, limits or Limits()))
    order = list(CHECKS)
    return sorted(findings, key=lambda finding: order.index(finding.check))


def show(findings: Sequence[Finding], console: Console) -> None:
    """The table, and one line that sums it up."""
    table = Table("check", "verdict", "found", "what to do", show_lines=False)
    for finding in findings:
        verdict = finding.verdict
        # As Text: what was found may hold brackets, which are no markup.
        table.add_row(
            Text(finding.check), Text(verdict.name.lower(), _STYLE[verdict]), Text(finding.found), Text(finding.remedy)
        )
    console.print(table)
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Severity}
    console.print(Text(", ".join(f"{count} {verdict.name.lower()}" for verdict, count in counts.items())))


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
        raise DatabaseUnavailable(f"no PostgreSQL runs under {var}: start it with `pillarbox up` or `database start`")
    return found
