"""suspend — `pillarbox suspend`: suspends mail, and lifts suspends

Owns: add, list and remove of suspends by command, for people and for programs.
Guarantees: suspended mail waits in the queue, is not tried and not counted as tried; every worker knows at once, or
    at its next poll. Removing a suspend makes its mail due at once. Suspends of queued.yaml are not touched here.
Raises: PillarboxError for errors that an operator can correct.
See: operate/settings/suspend.py, which does it; docs/how-to/deliver/suspend-a-destination.md.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from operate.selection import in_words
from operate.settings import suspend
from scripts import one_connection
from scripts.options import duration, finish, row_number
from scripts.output import records, settings
from scripts.output.reason import add_reason, by
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared.config.queued.pacing import FIELDS
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from operate.shapes.settings import Removed
    from shared.postgres import database

_MEANINGS: Final = {
    "destination": "mail to this domain; .example.com is every domain below that one",
    "transport": "mail over this transport of queued.yaml",
    "sender": "mail from this domain",
    "tenant": "mail of this tenant (metadata `tenant`)",
    "jobid": "mail with this jobid",
    "site": "mail to this group of mail exchangers",
    "source": "mail from this source address of ours",
}

_COLUMNS: Final = (
    Column("id", right=True),
    Column("what", least=24, whole=True),
    Column("until"),
    Column("since", gives=1),
    Column("who", gives=2, least=8),
    Column("reason", gives=3, least=12),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `suspend` and its verbs to the command line."""
    parser = subparsers.add_parser("suspend", help="pause the delivery of some mail, or of all, and resume it")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("add", help="suspend mail that matches all options")
    for name, meaning in _MEANINGS.items():
        verb.add_argument(f"--{name}", action="append", metavar="VALUE", help=f"{meaning}; may be given again")
    verb.add_argument("--all", action="store_true", help="all mail: instead of the options above")
    add_reason(verb, "the reason; it appears in last_error of the mail", required=True)
    verb.add_argument("--for", dest="span", type=_span, metavar="TIME", help="1h, 2d (until it is removed)")
    settings.add_preview(verb)
    verb.add_argument("--who", metavar="NAME", help="who suspends it (default: the principal or login you act for)")
    finish(verb, add, acting=True)

    finish(
        verbs.add_parser("list", help="list mail that is suspended by command or by rule"), list_suspends, acting=True
    )

    verb = verbs.add_parser("remove", help="resume its delivery")
    verb.add_argument("ids", type=row_number, nargs="*", metavar="ID", help="numbers that `list` shows")
    verb.add_argument("--all", action="store_true", help="all of them")
    settings.add_options(verb)
    finish(verb, remove, acting=True)


def add(options: argparse.Namespace) -> int:
    """Suspend mail."""
    given = {name: getattr(options, name) or [] for name in FIELDS}
    selected = suspend.selection(options.config, given, everything=options.all)
    how = {"reason": options.reason, "who": options.who, "seconds": options.span, "dry_run": options.dry_run}
    made = _ask(options, lambda connection: suspend.add(connection, by(options), selected, **how))
    return settings.tell(
        options,
        made,
        lambda done: f"{done.id}: {in_words(selected)} is suspended {_shown(done.expires)}; audit {done.audit}",
    )


def list_suspends(options: argparse.Namespace) -> int:
    """Print what is suspended."""
    rows = _ask(options, suspend.active)
    if options.json:
        records.lines(map(fields, rows))
        return 0
    Table(_COLUMNS).print(
        (row.id, in_words(row.selection), row.expires or "until it is removed", row.made, row.who, row.reason)
        for row in rows
    )
    if not rows:
        print("nothing is suspended")
    return 0


def remove(options: argparse.Namespace) -> int:
    """Let mail go again, at once."""
    if bool(options.ids) == options.all:
        raise PillarboxError("suspend remove: give numbers that `pillarbox suspend list` shows, or --all")

    ids, who = None if options.all else options.ids, by(options)
    gone = _ask(options, lambda connection: suspend.remove(connection, who, ids, dry_run=options.dry_run))
    return settings.tell(options, gone, _resumed)


def _resumed(done: Removed) -> str:
    each = zip(done.removed, done.selections, strict=True)
    lines = [f"{id_}: {in_words(selection)} is no longer suspended" for id_, selection in each]
    return "\n".join([*lines, f"audit {done.audit}"]) if lines else f"nothing was suspended; audit {done.audit}"


def _span(text: str) -> float:
    """Seconds from a duration as in the configuration."""
    seconds = duration(text).total_seconds()
    if not seconds:
        raise argparse.ArgumentTypeError(f"{show(text)} is too short; allowed: a duration above zero")
    return seconds


def _shown(expires: Any) -> str:
    return f"until {expires:%Y-%m-%d %H:%M:%S %Z}" if expires else "until it is removed"


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    """Do the work on one connection to the configured database."""
    return one_connection.ask(one_connection.configured(options), "pillarbox suspend", work)
