"""collect — `pillarbox collect`: run one collector of account mail in the foreground

See: collect/daemon.py; docs/how-to/send/account-mail.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collect.__main__ import collect
from scripts.options import add_config

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `collect` to the command line."""
    parser = subparsers.add_parser("collect", help="queue activation and recovery mail for accounts in PostgreSQL")
    add_config(parser)
    parser.add_argument(
        "--csv", action="store_true", help="write mailroom's lines to standard output, as its MAILROOM_ variables say"
    )
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Collect until SIGTERM or SIGINT."""
    return collect(options.config / "collect.yaml", csv=options.csv)
