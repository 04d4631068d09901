"""decide — `pillarbox quarantine release|delete`: what becomes of held mail

Owns: these verbs and what each changes.
Called by: scripts.quarantine.
Guarantees: all of scripts.queue.act's: nothing without `--yes`, batches, an audit row with exact counts, and a command
    that was cut off is finished by giving it again. To other addresses mail goes as a copy, and the held recipient is
    deleted in the same transaction.
Raises: PillarboxError for what a reviewer can mend.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from scripts.options import count, finish
from scripts.quarantine.access import admit, narrowed
from scripts.queue.act import Change, act
from scripts.queue.ask import add_condition, run
from shared.address import AddressRefused, parse
from shared.config import load_smtpd
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from shared import database
    from shared.message import Address

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
    _verb(under, "delete", "delete held mail without telling anybody")


def acting(verb: argparse.ArgumentParser) -> None:
    """The options of verbs that act."""
    add_condition(verb, all_=True)
    verb.add_argument("--limit", type=count, metavar="N", help="at most so many, in the order they came")
    verb.add_argument("--yes", action="store_true", help="do it; without this it only says what it would do")
    verb.add_argument("--reason", type=sentence, metavar="TEXT", help="why, for the audit row")


def address(text: str) -> Address:
    """An address on a command line, as PostgreSQL's functions take it."""
    try:
        made = parse(text)
    except AddressRefused as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None
    if not made.domain.isascii():
        raise argparse.ArgumentTypeError(f"{text!r}: write the domain as A-labels (xn--…)")
    return made


def sentence(text: str) -> str:
    """A reason on a command line."""
    if len(text) <= 1000 and text.isprintable():  # noqa: PLR2004 - a sentence, not a report
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is no reason; allowed: up to 1000 printable characters")


def _verb(under: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help_: str) -> argparse.ArgumentParser:
    verb = under.add_parser(name, help=help_)
    acting(verb)
    verb.set_defaults(verb=name)
    finish(verb, _decide)
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
        raise PillarboxError(f"quarantine release: {len(unique)} addresses; allowed: up to {_MOST_ADDRESSES}")
    values = {"localparts": [each.localpart for each in unique], "domains": [each.domain for each in unique]}
    argument = {"to": [str(each) for each in unique]}
    return Change("redirect", "quarantine_redirect", ("HOLD",), "redirected", values=values, argument=argument)
