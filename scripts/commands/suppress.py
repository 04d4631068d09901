"""suppress — addresses and domains that get no mail

Owns: the verb `suppress`: add, remove, list, import.
Guarantees: workers refuse an added address within seconds (suppression.atdelivery), and smtpd refuses it at RCPT where
    smtpd.yaml says so. An import is one transaction: all of a file, or nothing.
Raises: PillarboxError for errors that an operator can correct, naming file and line.
See: operate/settings/suppress.py, which does it; docs/how-to/deliver/suppression.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.settings import suppress
from scripts import input_file, one_connection
from scripts.options import duration, finish
from scripts.output import records, settings
from scripts.output.reason import add_reason, by
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared.config.queued.load import load_queued
from shared.errors import PillarboxError, cause

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from shared.postgres import database

_BATCH: Final = 1000
_TYPED: Final = "addresses and domains, one a line"
_COLUMNS: Final = (
    Column("target", least=24, whole=True),
    Column("source"),
    Column("since", gives=2),
    Column("expires", gives=3),
    Column("reports", gives=1, right=True),
    Column("reason", gives=4, least=12),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its own verbs."""
    parser = subparsers.add_parser("suppress", help="addresses and domains that get no mail")
    verbs = parser.add_subparsers(required=True, metavar="WHAT")
    verb = verbs.add_parser("add", help="suppress addresses or domains")
    verb.add_argument("targets", nargs="+", metavar="TARGET", help="an address, or a domain")
    _add_terms(verb)
    finish(verb, add, acting=True)
    verb = verbs.add_parser("import", help="suppress every address or domain of a file, one a line")
    verb.add_argument("file", help="the file; - is standard input; # begins a comment")
    _add_terms(verb)
    finish(verb, import_file, acting=True)
    verb = verbs.add_parser("remove", help="let an address or a domain get mail again")
    verb.add_argument("target", metavar="TARGET")
    settings.add_options(verb)
    finish(verb, remove, acting=True)
    verb = verbs.add_parser("list", help="list suppressed addresses with reason and end")
    verb.add_argument("--noted", action="store_true", help="also addresses that failed, but not yet often enough")
    finish(verb, list_targets, acting=True)


def add(options: argparse.Namespace) -> int:
    """Suppress what the command line names."""
    return _added(options, [suppress.target(text, "TARGET") for text in options.targets])


def import_file(options: argparse.Namespace) -> int:
    """Suppress what a file names."""
    try:
        lines = input_file.read(options.file, _TYPED).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PillarboxError(f"{options.file}: cannot be read: {cause(error)}; allowed: a text file in UTF-8") from None
    written = ((number, line.partition("#")[0].strip()) for number, line in enumerate(lines, start=1))
    return _added(options, [suppress.target(text, f"{options.file}:{number}") for number, text in written if text])


def remove(options: argparse.Namespace) -> int:
    """Let a target get mail again."""
    who, how = by(options), {"dry_run": options.dry_run}
    gone = _ask(options, lambda connection: suppress.remove(connection, who, options.target, "TARGET", **how))
    return settings.tell(options, gone, lambda done: f"{done.target} is removed; audit {done.audit}")


def list_targets(options: argparse.Namespace) -> int:
    """Print the table, or JSON."""
    rows = _ask(options, lambda connection: _all(connection, noted=options.noted))
    if options.json:
        records.lines(map(fields, rows))
        return 0
    Table(_COLUMNS).print(
        (
            row.target,
            row.source if row.active else f"{row.source}, noted",
            row.since,
            row.expires or "never",
            row.count,
            row.reason,
        )
        for row in rows
    )
    if not rows:
        print("no addresses are suppressed")
    return 0


def _added(options: argparse.Namespace, targets: list[str]) -> int:
    how = {"reason": options.reason, "keep": options.keep, "dry_run": options.dry_run}
    added = _ask(options, lambda connection: suppress.add(connection, by(options), targets, **how))
    return settings.tell(options, added, lambda done: f"{done.suppressed} suppressed; audit {done.audit}")


async def _all(connection: database.Connection, *, noted: bool) -> list[database.Row]:
    rows: list[database.Row] = []
    while True:
        after = rows[-1].target if rows else ""
        more = await suppress.portion(connection, noted=noted, after=after, limit=_BATCH)
        rows += more
        if len(more) < _BATCH:
            return rows


def _ask[T](options: argparse.Namespace, question: Callable[[database.Connection], Awaitable[T]]) -> T:
    environment = load_queued(options.config / "queued.yaml").environment
    conninfo = one_connection.started(environment.database.uri, environment.var)
    return one_connection.ask(conninfo, "pillarbox suppress", question)


def _add_terms(verb: argparse.ArgumentParser) -> None:
    add_reason(verb, "the reason; senders may read it", default="by an operator")
    settings.add_preview(verb)
    verb.add_argument("--keep", type=duration, metavar="DURATION", help="for how long, such as 30d (default: for ever)")
