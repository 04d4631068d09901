"""command — `pillarbox retention`: deletes held mail and audit rows that are older than their retention

Owns: the verb's options.
See: docs/how-to/review/keep-and-delete.md; scripts/retention/run.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.options import duration, finish
from scripts.output import consent
from scripts.retention.run import retention

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `retention` to the command line."""
    verb = subparsers.add_parser(
        "retention", help="delete mail that has been on hold longer than quarantines[].retention"
    )
    verb.add_argument("--quarantine", metavar="ID", help="only this one")
    verb.add_argument("--age", type=duration, metavar="DURATION", help="with --quarantine: instead of its retention")
    consent.add_consent(verb)
    finish(verb, retention, acting=True)
