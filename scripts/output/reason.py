"""reason — who runs a command that changes something, and why, for its audit row

Owns: the option --reason of these commands.
See: operate/queue/act.py, By.
"""

from __future__ import annotations

import argparse

from operate.errors import Refused
from operate.queue.act import By, checked_reason
from scripts.one_connection import system_user


def add_reason(
    verb: argparse.ArgumentParser,
    what: str = "why, for the audit row",
    *,
    default: str | None = None,
    required: bool = False,
) -> None:
    """The option that says why; `what`: its line in --help."""
    verb.add_argument("--reason", type=_sentence, default=default, required=required, metavar="TEXT", help=what)


def by(options: argparse.Namespace) -> By:
    """Who runs the command, and why."""
    return By(operator=system_user(), reason=options.reason)


def _sentence(text: str) -> str:
    try:
        return checked_reason(text)
    except Refused as error:
        raise argparse.ArgumentTypeError(error.reason) from None
