"""command — `pillarbox accounts`: install and remove the tables of account mail, look at its mail, verify its secrets

Owns: the verbs install, remove, preview and verify.
Guarantees: installing twice changes nothing the second time. Nothing is removed without consent, and only what was
    installed. preview and verify need no database.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/send/account-mail.md; sql/accounts/README.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from typing import TYPE_CHECKING

from collect.daemon import read_keys
from collect.mailroom import KEY, mailroom_key
from collect.message import Composer
from collect.templates import SAMPLE, Templates, values
from collect.token import ACTIONS, Signer
from scripts import one_connection
from scripts.options import finish
from scripts.output import records
from scripts.output.consent import add_consent, agreed
from shared.config.collect.load import load_collect
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.masking import show
from shared.postgres import account_schema
from shared.security.account_token import ACTIVATE, KEY_OCTETS, RECOVER, verify

if TYPE_CHECKING:
    from collections.abc import Callable


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `accounts` and its verbs to the command line."""
    parser = subparsers.add_parser("accounts", help="account mail from the database itself: tables, tokens, templates")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_verb(verbs, "install", install, "make the tables, triggers and functions, or upgrade them")
    add_consent(_add_verb(verbs, "remove", remove, "drop them, with every account"))
    verb = verbs.add_parser("preview", help="show the mail that the templates make for a sample account")
    verb.add_argument("action", choices=ACTIONS, help="which mail")
    verb.add_argument("--language", metavar="TAG", help="the account's language (mail.language)")
    part = verb.add_mutually_exclusive_group()
    part.add_argument("--html", action="store_true", help="the HTML part alone, for a browser")
    part.add_argument("--raw", action="store_true", help="the message as it is queued")
    finish(verb, preview)
    verb = verbs.add_parser("verify", help="verify a signed secret without a database")
    verb.add_argument("token", help="the signed secret, from the link")
    verb.add_argument("--path", choices=(ACTIVATE, RECOVER), default=ACTIVATE, help=f"what it is for ({ACTIVATE})")
    verb.add_argument("--code", help="the code that was typed; recovery needs it")
    finish(verb, verify_token)


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
    done = account_schema.install(one_connection.chosen(options), options.schema)
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
    conninfo = one_connection.chosen(options)
    accounts, tokens = account_schema.count(conninfo, options.schema)
    counted = f"{how_many(accounts, 'account')}, {how_many(tokens, 'token')}"
    if not options.json:
        print(f"schema {options.schema}: {counted}; they will be gone")
    removed = asyncio.run(agreed(options, "accounts remove"))
    if removed:
        account_schema.remove(conninfo, options.schema)
    if options.json:
        records.one({"schema": options.schema, "accounts": accounts, "tokens": tokens, "removed": removed})
    elif removed:
        print("removed")
    return 0


def preview(options: argparse.Namespace) -> int:
    """Print the mail for a sample account."""
    mail = load_collect(options.config / "collect.yaml").mail
    sample = mail.model_copy(
        update={
            "sender": mail.sender or "accounts@example.com",
            "activate": mail.activate or "https://www.example.com/activate?token={token}",
            "recover": mail.recover or "https://www.example.com/recover?token={token}",
        }
    )
    templates = Templates(mail.templates, mail.language)
    token = SAMPLE._replace(action=options.action, language=options.language)
    composer = Composer(sample, templates, Signer(bytes(KEY_OCTETS)))
    text = templates.render(token.action, token.language, values(token, composer.link(token)))
    message = composer(token).content.decode(errors="replace").replace("\r\n", "\n")
    if options.json:
        records.one({"subject": text.subject, "plain": text.plain, "html": text.html, "message": message})
    elif options.raw:
        sys.stdout.write(message)
    else:
        sys.stdout.write(text.html if options.html else f"Subject: {text.subject}\n\n{text.plain}")
    return 0


def verify_token(options: argparse.Namespace) -> int:
    """Say whether one of the keys signed it: those of collect.yaml, or mailroom's variable where that is set."""
    if text := os.environ.get(KEY):
        keys = {KEY: mailroom_key(text)}
    else:
        keys = read_keys(load_collect(options.config / "collect.yaml"))
        if not keys:
            raise PillarboxError(f"accounts verify: no key; allowed: keys in collect.yaml, or {KEY}")
    found = verify(keys, options.path, options.token, options.code)
    if found is None:
        raise PillarboxError("accounts verify: not valid: another key, path or code, expired, or altered")
    bound = "" if found.expires_at is None else f", key {found.key_id}, expires at {found.expires_at}"
    said = {"secret": found.secret.hex(), "key": found.key_id, "expires_at": found.expires_at}
    return records.tell(f"valid: secret {found.secret.hex()}{bound}", said, as_json=options.json)


def _schema(text: str) -> str:
    if not account_schema.NAME.fullmatch(text):
        raise argparse.ArgumentTypeError(
            f"{show(text)} is not the name of a schema here; allowed: 1 to 63 of a-z, 0-9 and underscore"
        )
    return text
