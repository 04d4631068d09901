"""command — `pillarbox doctor`: reports faults of the queue, its workers and its server, with remedies

Owns: the command line, the table, `--json` and the exit status.
Guarantees: nothing is changed, nothing is started and no mail is sent. Exit status 1 if, and only if, there is an
    alarm.
Raises: PillarboxError when the configuration cannot be read. A database that does not answer is a finding.
See: docs/reference/doctor.md for the checks; operate/doctor/checks.py for their limits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from operate.doctor.checks import Finding, Severity, worst
from operate.doctor.whole import diagnosis, examine
from scripts.config_files import collector_file, load_both
from scripts.options import finish
from scripts.output import records
from scripts.output.table import Column, Table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `doctor` to the command line."""
    parser = subparsers.add_parser("doctor", help="say what is wrong with queue, workers and server, and what to do")
    parser.add_argument("--all", action="store_true", help="list what is fine, too")
    parser.add_argument("--offline", action="store_true", help="contact no next hop and no name server")
    finish(parser, run)


def run(options: argparse.Namespace) -> int:
    """Examine and report; 1 when there is an alarm."""
    smtpd, queued = load_both(options.config)
    collect = collector_file(options.config)
    findings = asyncio.run(examine(smtpd, queued, collect=collect, offline=options.offline))
    if options.json:
        records.one(diagnosis(findings).model_dump())
    else:
        show(findings, everything=options.all)
    return 1 if worst(findings) is Severity.ALARM else 0


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
