"""daemons — verdicts on the processes of the register: those that fell silent, and whether all are one version

Guarantees: no I/O.
See: operate/doctor/workers.py, for what workers serve.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Finding, Severity, listed, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.postgres.database import Row


def daemons(rows: Sequence[Row]) -> list[Finding]:
    """Processes beside the workers that do not beat, and whether all that do are one version. rows: daemon_seen."""
    found = [
        Finding(
            "daemon.live",
            Severity.WARN,
            f"{row.daemon} has been silent for {span(row.silent)} and did not sign off",
            "look at its log, and start it again",
        )
        for row in rows
        if not row.live and row.kind != "queued"
    ]
    if not found:
        others = sorted(row.daemon for row in rows if row.live and row.kind != "queued")
        found.append(Finding("daemon.live", Severity.OK, listed(others) or "no daemon beside workers has signed on"))
    versions: dict[str, list[str]] = {}
    for row in rows:
        if row.live:
            versions.setdefault(row.version, []).append(row.daemon)
    if len(versions) > 1:
        text = "; ".join(f"{version}: {listed(sorted(those))}" for version, those in sorted(versions.items()))
        remedy = "finish the upgrade: restart those of the older version"
        return [*found, Finding("daemon.versions", Severity.WARN, text, remedy)]
    return [*found, Finding("daemon.versions", Severity.OK, listed(list(versions)) or "no daemon has signed on")]
