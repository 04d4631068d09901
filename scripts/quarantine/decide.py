"""decide — `pillarbox quarantine release|delete`: releases or deletes held mail

Owns: these verbs.
Guarantees: all of scripts.queue.act's: nothing without `--yes` or a yes, batches, an audit row with exact counts, and a
    command that was cut off is finished by running it again.
Raises: PillarboxError for errors that a reviewer can correct.
See: operate/quarantine/decide.py for what each changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.quarantine.decide import delete, release
from scripts.options import address, finish
from scripts.quarantine.reviewing import narrow
from scripts.queue.act import act, add_acting
from scripts.queue.query import run
from shared.config.smtpd.load import load_smtpd

if TYPE_CHECKING:
    import argparse

    from shared.postgres import database


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that decide."""
    verb = _verb(under, "release", "deliver held mail")
    verb.add_argument(
        "--to",
        type=address,
        action="append",
        default=[],
        metavar="ADDRESS",
        help="to this address instead of its recipient; may be given again",
    )
    _verb(under, "delete", "delete held mail without a notification")


def _verb(under: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str) -> argparse.ArgumentParser:
    verb = under.add_parser(name, help=help_)
    add_acting(verb)
    verb.set_defaults(verb=name)
    finish(verb, _decide, acting=True)
    return verb


def _decide(options: argparse.Namespace) -> int:
    settings = load_smtpd(options.config / "smtpd.yaml")
    change = delete() if options.verb == "delete" else release(options.to)

    async def go(connection: database.Connection) -> int:
        options.condition = (await narrow(connection, settings, options)).words
        return await act(connection, options, change)

    return run(options, go)
