"""command — `pillarbox quarantine`: shows held mail safely, releases it, deletes it, scans it again

Owns: the verbs and their options.
See: docs/how-to/review/review-quarantined-mail.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.quarantine import decide, digest, export, rescan, show

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `quarantine` and its verbs to the command line."""
    parser = subparsers.add_parser("quarantine", help="held mail: list, show, release, delete, rescan, export, digest")
    under = parser.add_subparsers(required=True, metavar="VERB")
    show.add_verbs(under)
    decide.add_verbs(under)
    rescan.add_verbs(under)
    export.add_verbs(under)
    digest.add_verbs(under)
