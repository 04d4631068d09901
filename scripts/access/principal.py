"""principal — `pillarbox principal`: manage the people and applications on whose behalf something is done

Owns: list, add, change, remove in the table pillarbox.principals.
Guarantees: a change keeps what its options do not name. Passwords are a matter of `pillarbox user passwd`, which takes
    applications that may send where smtpd.yaml says `authentication.source: table`.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/rights/say-on-whose-behalf.md; scripts/access/principal_store.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from scripts import one_connection
from scripts.access import user
from scripts.access.principal_store import KINDS, ROLES, PrincipalEntry, PrincipalStore, columns
from scripts.options import finish
from scripts.output import records, settings
from scripts.output.reason import by
from scripts.output.table import Column, Table
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.quarantine import all_quarantines
from shared.config.smtpd.users import make_entry
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    import argparse

    from operate.queue.act import By
    from operate.shapes.settings import PrincipalChanged, SettingsPreview

_COLUMNS: Final = (
    Column("name", least=24, whole=True),
    Column("kind"),
    Column("roles", least=16),
    Column("state", gives=1),
    Column("reviews", gives=2),
    Column("senders", gives=3, least=16),
)
#: What --clear takes back, each with its value for a new principal.
_CLEARED: Final[dict[str, Any]] = {"reviews": None, "senders": [], **dict.fromkeys(user.SENDING[1:])}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `principal` and its verbs to the command line."""
    parser = subparsers.add_parser("principal", help="manage the people and applications on whose behalf mail is sent")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    finish(verbs.add_parser("list", help="every principal, without passwords"), list_principals, acting=True)
    verb = user.add_verb(verbs, "add", add, "add a principal")
    verb.add_argument("--kind", choices=KINDS, default="person", help="person or application (default: person)")
    settings.add_options(verb)
    _add_rights(verb)
    verb = user.add_verb(verbs, "change", change, "change a principal; what no option names stays as it is")
    _add_rights(verb)
    verb.add_argument(
        "--clear", action="append", choices=tuple(_CLEARED), default=[], help="back to the default; may be given again"
    )
    settings.add_options(verb)
    state = verb.add_mutually_exclusive_group()
    state.add_argument("--disable", action="store_true", help="refuse everything on its behalf, and its logins")
    state.add_argument("--enable", action="store_true", help="allow it again")
    settings.add_options(user.add_verb(verbs, "remove", remove, "forget a principal"))


def _add_rights(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--role",
        dest="roles",
        action="append",
        choices=ROLES,
        help="what it may do; may be given again (viewer for a person, sender for an application)",
    )
    verb.add_argument(
        "--review",
        dest="reviews",
        action="append",
        metavar="ID",
        help="a quarantine that it may review; may be given again (default: all that allow it)",
    )
    user.add_sending(verb)


def list_principals(options: argparse.Namespace) -> int:
    """Print every principal."""
    found = sorted(_store(options).entries().items())
    if options.json:
        records.lines(user.public(name, entry) for name, entry in found)
        return 0
    Table(_COLUMNS).print(_cells(name, cast("PrincipalEntry", entry)) for name, entry in found)
    if not found:
        print("no principals")
    return 0


def _cells(name: str, entry: PrincipalEntry) -> tuple[object, ...]:
    """One principal as a row of the table."""
    state = "disabled" if entry.disabled else "enabled"
    reviews = "all" if entry.reviews is None else entry.reviews or "none"
    return name, entry.kind, entry.roles, state, reviews, [sender or "<>" for sender in entry.senders] or "any"


def add(options: argparse.Namespace) -> int:
    """Add a principal."""
    name = user.new_name(options)
    roles = ["sender"] if options.kind == "application" else ["viewer"]
    entry = make_entry({"kind": options.kind, "roles": roles, **_rights_of(options)}, PrincipalEntry)
    _check_reviews(options)
    done = _changed(options, "add", "principal_add", name, values=columns(entry.model_dump()))
    if done is None:
        raise PillarboxError(
            f"NAME: there is a principal {show(name)} already; allowed: another name, or principal change"
        )
    return settings.tell(options, done, lambda made: f"{made.name} is added; audit {made.audit}")


def change(options: argparse.Namespace) -> int:
    """Change what its options name."""
    values = {key: _CLEARED[key] for key in options.clear}
    values |= _rights_of(options)
    if options.disable or options.enable:
        values["disabled"] = options.disable
    if not values:
        raise PillarboxError("principal change: a change is missing; allowed: --role, --review, --disable, …")
    entry = make_entry(values, PrincipalEntry)
    _check_reviews(options)
    done = _changed(
        options, "change", "principal_change", options.name, values=columns(entry.model_dump(include=set(values)))
    )
    return _told(options, done, "is changed")


def remove(options: argparse.Namespace) -> int:
    """Forget a principal."""
    return _told(options, _changed(options, "remove", "principal_remove", options.name), "is removed")


def _changed(
    options: argparse.Namespace, verb: str, query: str, name: str, **values: Any
) -> PrincipalChanged | SettingsPreview | None:
    """As TableStore.changed, by the options."""
    store = _store(options, by(options))
    return store.changed(verb, query, user.spelled(name), dry_run=options.dry_run, **values)


def _told(options: argparse.Namespace, done: PrincipalChanged | SettingsPreview | None, words: str) -> int:
    """Say what was done to one that is there."""
    if done is None:
        user.check_known(_store(options), options.name)
        raise PillarboxError(f"NAME: another command changes {show(options.name)} at this moment; try again")
    return settings.tell(options, done, lambda made: f"{options.name} {words}; audit {made.audit}")


def _rights_of(options: argparse.Namespace) -> dict[str, Any]:
    """What the options of _add_rights say; what is left out is not among them."""
    own = {key: value for key in ("roles", "reviews") if (value := getattr(options, key)) is not None}
    return {**own, **user.sending_of(options)}


def _check_reviews(options: argparse.Namespace) -> None:
    """Refuse quarantines that smtpd.yaml does not declare: a typing error would let the principal review nothing."""
    file = options.config / "smtpd.yaml"
    known = all_quarantines(load_smtpd(file).quarantines)
    for name in options.reviews or ():
        if name not in known:
            raise PillarboxError(
                f"--review: {show(name)} is not in quarantines of {file}; allowed: {', '.join(sorted(known))}"
            )


def _store(options: argparse.Namespace, by: By | None = None) -> PrincipalStore:
    return PrincipalStore(one_connection.configured(options), by)
