"""user — `pillarbox user`: manage users that may submit mail

Owns: add, passwd, disable, enable, list, remove in the file or table that smtpd.yaml names; hash, for
    smtpd.yaml itself.
Guarantees: a password is never an argument, so it is in no process list and no shell history. Both verifiers of a
    password are made together: argon2 for PLAIN and LOGIN, SCRAM keys for SCRAM-SHA-256. smtpd needs no restart.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/send/submit-with-authentication.md; scripts/access/user_store.py.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from operate import transports
from scripts import one_connection
from scripts.access import password
from scripts.access.user_store import FileStore, TableStore
from scripts.options import count, finish
from scripts.output import records
from scripts.output.table import Column, Table
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.users import UserEntry, make_entry, read_name
from shared.errors import ConfigError, PillarboxError
from shared.masking import show
from shared.security.scram_keys import SALT_OCTETS, ScramKeys
from smtpd.login.passwords import make_hash

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from scripts.access.user_store import Store
    from shared.config.smtpd.settings import SmtpdConfig

#: The keys of an entry that add_sending has options for.
SENDING: Final = ("senders", "messages", "recipients", "partition", "transport", "hold")
_COLUMNS: Final = (
    Column("name", least=24, whole=True),
    Column("state"),
    Column("senders", gives=8, least=16),
    Column("mechanisms", gives=1),
    Column("messages/h", gives=5, right=True),
    Column("recipients/h", gives=4, right=True),
    Column("partition", gives=2),
    Column("transport", gives=3),
    Column("hold", gives=6),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `user` and its verbs to the command line."""
    parser = subparsers.add_parser("user", help="manage users that may submit mail")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = add_verb(verbs, "add", add, "add a user; the password is asked for, or read from a pipe")
    _add_password(verb)
    add_sending(verb)
    _add_password(add_verb(verbs, "passwd", passwd, "change a user's password"))
    add_verb(verbs, "disable", disable, "refuse the user's logins until it is enabled")
    add_verb(verbs, "enable", enable, "accept the user's logins again")
    add_verb(verbs, "remove", remove, "forget a user")
    verb = verbs.add_parser("list", help="every user, without passwords")
    finish(verb, list_users, acting=True)
    verb = verbs.add_parser("hash", help="read a password, print the line for authentication.users")
    verb.add_argument("name", help="the user's name")
    verb.add_argument("--json", action="store_true", help="JSON for programs")
    verb.set_defaults(func=print_hash)


def add_sending(verb: argparse.ArgumentParser) -> None:
    """The options that say as whom, how much and which way one may send."""
    verb.add_argument(
        "--sender",
        dest="senders",
        action="append",
        metavar="PATTERN",
        help='user@example.com, example.com, *.example.com, or "" for the null sender; may be given again (any sender)',
    )
    for name in ("messages", "recipients"):
        verb.add_argument(f"--{name}", type=count, metavar="N", help=f"{name} in an hour (no limit)")
    verb.add_argument("--partition", metavar="ID", help="partition of the mail (default: as policy decides)")
    verb.add_argument("--transport", metavar="ID", help="transport of the mail (default: as policy decides)")
    verb.add_argument("--hold", metavar="ID", help="hold its mail under this quarantine id")


def sending_of(options: argparse.Namespace) -> dict[str, Any]:
    """What these options say, as values of an entry; what is left out is not among them."""
    transports.check_option(options.config, [options.transport] if options.transport else [])
    return {key: value for key in SENDING if (value := getattr(options, key)) is not None}


def add(options: argparse.Namespace) -> int:
    """Add a user."""
    config = _config(options)
    values = sending_of(options)
    make_entry(values)  # before a password is typed
    store = _store(config)
    name = new_name(options)
    entry = make_entry({**values, **_verifiers(config, options)})
    if not store.add(name, entry):
        what = "user" if name in store.entries() else "principal that is no such user"
        raise PillarboxError(f"NAME: there is a {what} {show(name)} already; allowed: another name, or user passwd")
    return records.tell(f"{name} is added", {"name": name}, as_json=options.json)


def new_name(options: argparse.Namespace) -> str:
    """The NAME of the command line in its one spelling."""
    try:
        return read_name(options.name)
    except ValueError as error:
        raise PillarboxError(f"NAME: {error}") from None


def passwd(options: argparse.Namespace) -> int:
    """Give a user another password; one that is logged in stays so."""
    config = _config(options)
    store = _store(config)
    check_known(store, options.name)
    return changed(store, options, "has a new password", **_verifiers(config, options))


def disable(options: argparse.Namespace) -> int:
    """Refuse the user's logins."""
    return changed(_store(_config(options)), options, "is disabled", disabled=True)


def enable(options: argparse.Namespace) -> int:
    """Take the user's logins again."""
    return changed(_store(_config(options)), options, "is enabled", disabled=False)


def remove(options: argparse.Namespace) -> int:
    """Forget a user."""
    return removed(_store(_config(options)), options)


def list_users(options: argparse.Namespace) -> int:
    """Print every user: those of smtpd.yaml, then those of the file or table."""
    config = _config(options)
    users = {name: UserEntry(argon2=known) for name, known in config.authentication.users.items()}
    try:
        users = {**_store(config).entries(), **users}
    except ConfigError:
        if config.authentication.file or config.authentication.source == "table":
            raise
    if options.json:
        records.lines(public(name, entry) for name, entry in sorted(users.items()))
        return 0
    Table(_COLUMNS).print(_cells(name, entry) for name, entry in sorted(users.items()))
    if not users:
        print("no users")
    return 0


def _cells(name: str, entry: UserEntry) -> tuple[object, ...]:
    """One user as a row of the table."""
    shown = public(name, entry)
    state = "disabled" if entry.disabled else "enabled"
    senders = [sender or "<>" for sender in entry.senders] or "any"
    rest = (shown[key] for key in ("messages", "recipients", "partition", "transport", "hold"))
    return name, state, senders, " ".join(shown["mechanisms"]), *rest


def print_hash(options: argparse.Namespace) -> int:
    """Ask for the password (or read it from a pipe) and print `name: "hash"`."""
    made = make_hash(password.asked(twice=True))
    return records.tell(f'{options.name}: "{made}"', {"name": options.name, "argon2": made}, as_json=options.json)


def public(name: str, entry: UserEntry) -> dict[str, Any]:
    """An entry without verifiers."""
    mechanisms = [
        m for m, known in (("PLAIN", entry.argon2), ("LOGIN", entry.argon2), ("SCRAM-SHA-256", entry.scram)) if known
    ]
    return {"name": name, "mechanisms": mechanisms, **entry.model_dump(exclude={"argon2", "scram"})}


def _verifiers(config: SmtpdConfig, options: argparse.Namespace) -> dict[str, str | None]:
    typed = password.asked(twice=True)
    if options.no_scram:
        return {"argon2": make_hash(typed), "scram": None}
    keys = ScramKeys.make(typed, secrets.token_bytes(SALT_OCTETS), config.authentication.iterations)
    return {"argon2": make_hash(typed), "scram": str(keys)}


def _store(config: SmtpdConfig) -> Store:
    settings = config.authentication
    if settings.source == "table":
        environment = config.environment
        return TableStore(one_connection.started(environment.database.uri, environment.var))
    if settings.file is None:
        allowed = (
            "authentication.file: PATH, authentication.source: table, or `pillarbox user hash` for smtpd.yaml itself"
        )
        raise ConfigError(f"authentication: smtpd.yaml names no place for users; allowed: {allowed}")
    return FileStore(settings.file)


def changed(store: Store, options: argparse.Namespace, words: str, **values: Any) -> int:
    """Change one that is there, and say so."""
    name: str = options.name
    if not store.change(spelled(name), **values):
        check_known(store, name)
    return records.tell(f"{name} {words}", {"name": name}, as_json=options.json)


def removed(store: Store, options: argparse.Namespace) -> int:
    """Forget one that is there, and say so."""
    if not store.remove(spelled(options.name)):
        check_known(store, options.name)
    return records.tell(f"{options.name} is removed", {"name": options.name}, as_json=options.json)


def check_known(store: Store, name: str) -> None:
    """Refuse a name that is not there."""
    names = store.entries()
    if spelled(name) not in names:
        raise PillarboxError(f"NAME: no {store.noun} {show(name)}; allowed: {', '.join(names) or 'there are none'}")


def spelled(name: str) -> str:
    """The name in its one spelling, or as it was given where it has none."""
    try:
        return read_name(name)
    except ValueError:
        return name


def _config(options: argparse.Namespace) -> SmtpdConfig:
    return load_smtpd(options.config / "smtpd.yaml")


def add_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[argparse.Namespace], int],
    text: str,
) -> argparse.ArgumentParser:
    """A verb about one NAME."""
    verb = verbs.add_parser(name, help=text)
    verb.add_argument("name", metavar="NAME")
    finish(verb, run, acting=True)
    return verb


def _add_password(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--no-scram", action="store_true", help="make an argon2 hash only: SCRAM-SHA-256 will not work")
