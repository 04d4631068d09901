"""key — `pillarbox key`: API keys, by which programs act for a principal over HTTP

Owns: the command line of operate/keys.py.
Guarantees: a key is printed once, when it is made, alone on its line.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/send/use-api-keys.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from operate import keys
from operate.queue.query import to_the_second
from scripts import one_connection
from scripts.options import duration, finish
from scripts.output import records, settings
from scripts.output.reason import by
from scripts.output.table import Column, Table

if TYPE_CHECKING:
    import argparse

_COLUMNS: Final = (
    Column("prefix", least=15, whole=True),
    Column("principal", least=16),
    Column("scopes", least=10),
    Column("state"),
    Column("expires", gives=1),
    Column("used", gives=2),
    Column("label", gives=3),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `key` and its verbs to the command line."""
    parser = subparsers.add_parser("key", help="manage the API keys of principals")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("add", help="make a key for a principal, and print it once")
    verb.add_argument("of", metavar="PRINCIPAL", help="for whom the key acts")
    verb.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        choices=tuple(keys.SCOPES),
        help="what the key may do; may be given again (all that the principal's roles allow)",
    )
    verb.add_argument("--expires", type=duration, metavar="SPAN", help="for how long, such as 90d (for ever)")
    verb.add_argument("--label", metavar="TEXT", help="what it is for")
    settings.add_options(verb)
    finish(verb, add, acting=True)
    verb = verbs.add_parser("list", help="every key, by its prefix")
    verb.add_argument("of", nargs="?", metavar="PRINCIPAL", help="only those of this principal")
    finish(verb, list_keys, acting=True)
    verb = verbs.add_parser("revoke", help="end a key")
    verb.add_argument("prefix", metavar="PREFIX", help="as `pillarbox key list` shows it")
    settings.add_options(verb)
    finish(verb, revoke, acting=True)


def add(options: argparse.Namespace) -> int:
    """Make a key."""
    expires = datetime.now(UTC) + options.expires if options.expires else None
    what = {"scopes": options.scopes, "expires": expires, "label": options.label, "dry_run": options.dry_run}
    made = one_connection.ask(
        one_connection.configured(options),
        "pillarbox key",
        lambda on: keys.add(on, by(options), options.of, **what),
    )
    return settings.tell(options, made, lambda made: made.key)


def list_keys(options: argparse.Namespace) -> int:
    """Print every key."""
    found = one_connection.ask(
        one_connection.configured(options), "pillarbox key", lambda on: keys.listed(on, options.of)
    )
    if options.json:
        records.lines(key.model_dump() for key in found)
        return 0
    Table(_COLUMNS).print(
        (key.prefix, key.principal, key.scopes, key.state, *map(_at, (key.expires, key.used)), key.label or "")
        for key in found
    )
    if not found:
        print("no keys")
    return 0


def _at(moment: datetime | None) -> str:
    return "never" if moment is None else to_the_second(moment)


def revoke(options: argparse.Namespace) -> int:
    """End a key."""
    done = one_connection.ask(
        one_connection.configured(options),
        "pillarbox key",
        lambda on: keys.revoke(on, by(options), options.prefix, dry_run=options.dry_run),
    )
    return settings.tell(options, done, lambda done: f"{done.prefix} is revoked; audit {done.audit}")
