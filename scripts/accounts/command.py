"""command — `pillarbox accounts`: install and remove the tables of account mail

Owns: the verbs install and remove.
Guarantees: installing twice changes nothing the second time. Nothing is removed without consent, and only what was
    installed.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/account-mail.md; sql/accounts/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from scripts import one_connection
from scripts.options import finish
from scripts.output import records
from scripts.output.consent import add_consent, agreed
from shared.how_many import how_many
from shared.postgres import account_schema, database

if TYPE_CHECKING:
    from collections.abc import Callable


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `accounts` and its verbs to the command line."""
    parser = subparsers.add_parser("accounts", help="account mail from the database itself: tables, tokens, templates")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_verb(verbs, "install", install, "make the tables, triggers and functions, or upgrade them")
    add_consent(_add_verb(verbs, "remove", remove, "drop them, with every account"))


def _add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=text)
    verb.add_argument(
        "--schema",
        type=_schema,
        default=account_schema.DEFAULT,
        metavar="NAME",
        help=f"their schema ({account_schema.DEFAULT})",
    )
    verb.add_argument("--database", metavar="URI", help="their database (that of smtpd.yaml, which holds the queue)")
    finish(verb, run)
    return verb


def install(options: argparse.Namespace) -> int:
    """Make what is missing."""
    done = account_schema.install(_conninfo(options), options.schema)
    if options.json:
        records.one({"schema": options.schema, "applied": done})
        return 0
    for name in done:
        print(f"applied {name}")
    if not done:
        print("nothing to do")
    return 0


def remove(options: argparse.Namespace) -> int:
    """Drop everything that was installed."""
    conninfo = _conninfo(options)
    accounts, tokens = account_schema.count(conninfo, options.schema)
    counted = {"schema": options.schema, "accounts": accounts, "tokens": tokens}
    if not options.json:
        print(
            f"schema {options.schema}: {how_many(accounts, 'account')}, {how_many(tokens, 'token')}; they will be gone"
        )
    elif not options.yes:
        records.one({**counted, "removed": False})
    if asyncio.run(agreed(options, "accounts remove")):
        account_schema.remove(conninfo, options.schema)
        if options.json:
            records.one({**counted, "removed": True})
        else:
            print("removed")
    return 0


def _conninfo(options: argparse.Namespace) -> str:
    if options.database is None:
        return one_connection.configured(options)
    return database.resolve(options.database, Path(), "--database")


def _schema(text: str) -> str:
    if not account_schema.NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not the name of a schema here; allowed: 1 to 63 of a-z, 0-9 and underscore"
        )
    return text
