"""migrate — `pillarbox migrate`: bring the database's schema to this version

Owns: the operator's command for shared.postgres.migrate.
Guarantees: running it twice changes nothing the second time.
Raises: PillarboxError for errors that an operator can correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import one_connection
from scripts.commands.up import tell_waiting
from scripts.options import add_config
from scripts.output import records
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.quarantine import reviewers
from shared.postgres import migrate

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `migrate` to the command line."""
    parser = subparsers.add_parser("migrate", help="bring the database's schema to this version")
    add_config(parser)
    parser.add_argument(
        "--phase",
        choices=("pre", "all"),
        default="all",
        help="pre: only migrations that old daemons tolerate, for a rolling upgrade (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Apply what is missing and say what was done."""
    config = load_smtpd(options.config / "smtpd.yaml")
    settings = config.environment.database
    report = migrate.migrate(
        one_connection.started(settings.uri, config.environment.var, make=True),
        settings.partitions.leaves,
        settings.partitions.count,
        reviewers=reviewers(config.quarantines),
        keepsubject=config.spool.keepsubject,
        only_pre=options.phase == "pre",
        tell=tell_waiting,
    )
    if options.json:
        records.one({"applied": report.applied, "leaves": report.leaves})
        return 0
    for name in report.applied:
        print(f"applied {name}")
    for leaf in report.leaves:
        print(f"made {leaf}")
    if not report.applied and not report.leaves:
        print("nothing to do")
    return 0
