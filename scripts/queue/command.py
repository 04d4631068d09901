"""command — `pillarbox queue`: shows queued mail and why it waits, and acts on it, one recipient or a million

Owns: the verbs and their options.
See: docs/how-to/operate/look-into-the-queue.md, docs/how-to/operate/act-on-the-queue.md; docs/reference/condition.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.queue import history, show, top, verbs

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `queue` and its verbs to the command line."""
    parser = subparsers.add_parser(
        "queue", help="list, show and change queued mail: list, group, show, hold, release, retry, …"
    )
    under = parser.add_subparsers(required=True, metavar="VERB")
    show.add_verbs(under)
    top.add_verbs(under)
    history.add_verbs(under)
    verbs.add_verbs(under)
