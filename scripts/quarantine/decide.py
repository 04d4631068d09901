"""decide — `pillarbox quarantine release|delete`: releases or deletes held mail

Owns: these verbs and their changes.
Guarantees: all of scripts.queue.act's: nothing without `--yes` or a yes, batches, an audit row with exact counts, and a
    command that was cut off is finished by running it again. To other addresses mail goes as a copy, and the held
    recipient is deleted in the same transaction.
Raises: PillarboxError for errors that a reviewer can correct.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.options import address, finish
from scripts.quarantine.access import admit, narrowed
from scripts.queue.act import Change, act, add_acting
from scripts.queue.query import run
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse

    from shared.mail.message import Address
    from shared.postgres import database

_MOST_ADDRESSES: Final = 20


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
    change = _delete() if options.verb == "delete" else _release(options.to)

    async def go(connection: database.Connection) -> int:
        await narrowed(connection, await admit(connection, settings), options)
        return await act(connection, options, change)

    return run(options, go)


def _delete() -> Change:
    return Change("delete", "queue_end", ("HOLD",), "deleted", values={"status": "DELETE"})


def _release(to: list[Address]) -> Change:
    if not to:
        return Change("release", "queue_release", ("HOLD",), "released")
    unique = list(dict.fromkeys(to))
    if len(unique) > _MOST_ADDRESSES:
        raise PillarboxError(
            f"quarantine release: {how_many(len(unique), 'address')}; allowed: up to {_MOST_ADDRESSES}"
        )
    values = {"localparts": [each.localpart for each in unique], "domains": [each.domain for each in unique]}
    argument = {"to": [str(each) for each in unique]}
    return Change("redirect", "quarantine_redirect", ("HOLD",), "redirected", values=values, argument=argument)
