"""whole — everything that doctor examines: the database, certificates, secrets, next hops, names, this host

Guarantees: nothing is changed, nothing is started and no mail is sent. A database that does not answer is a finding.
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

from operate.doctor import host, published, reach
from operate.doctor.account_mail import account_mail
from operate.doctor.certificates import certificates
from operate.doctor.checks import CHECKS, Finding, Limits, Severity, worst
from operate.doctor.examine import Look
from operate.doctor.logins import refused_by, secrets
from operate.doctor.next_hop import next_hop
from operate.doctor.python import build
from operate.doctor.server import disk
from operate.doctor.windows import windows
from operate.shapes import checks as shapes
from operate.shapes.checks import Diagnosis
from queued.routing.resolver import Resolver
from shared.errors import DatabaseUnavailable
from shared.host_name import own_name
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from shared.config.collect.settings import CollectConfig
    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig


async def examine(
    smtpd: SmtpdConfig,
    queued: QueuedConfig,
    limits: Limits | None = None,
    *,
    collect: CollectConfig | None = None,
    offline: bool = False,
) -> list[Finding]:
    """Every finding, the gravest first, then in the order of the table of checks. `collect`: None without that file."""
    environment = smtpd.environment
    findings = await _database(smtpd, queued, limits)
    findings += await account_mail(collect, limits or Limits())
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
        resolver = Resolver(queued.routing.dns, patience=None)
        try:
            hosts, names, records = await asyncio.gather(
                reach.reached(queued, refused_by(findings), resolver),
                reach.names(smtpd, queued, resolver),
                published.records(queued, resolver),
            )
            findings += [*hosts, names, *records]
        finally:
            await resolver.close()
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


def diagnosis(findings: Sequence[Finding]) -> Diagnosis:
    """The same as one form."""
    return Diagnosis.model_validate(
        {
            "verdict": worst(findings).name.lower(),
            "findings": [
                shapes.Finding.model_validate(
                    {"check": f.check, "verdict": f.verdict.name.lower(), "found": f.found, "remedy": f.remedy}
                )
                for f in findings
            ],
        }
    )


def _conninfo(uri: str, var: Path) -> str:
    """As the daemons resolve it, but an embedded server that does not run is not started."""
    found = database.resolve_running(uri, var)
    if found is None:
        raise DatabaseUnavailable(
            f"no PostgreSQL runs under {var}: start it with `pillarbox up` or `pillarbox database start`"
        )
    return found
