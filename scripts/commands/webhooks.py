"""webhooks — `pillarbox webhooks`: HTTP endpoints that receive events about mail

Owns: the command line of operate/webhooks.
Guarantees: a secret is printed once, when it is made, and by no other verb. `pillarbox queue undo` undoes a change.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/send/webhooks.md.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from operate.errors import Refused
from operate.webhooks import endpoints, probe
from operate.webhooks.endpoints import Wanted
from scripts import one_connection
from scripts.options import between, duration, finish
from scripts.output import records, settings
from scripts.output.reason import add_reason, by
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared.config.queued.load import load_queued
from shared.config.queued.webhooks import KINDS, LARGEST_BATCH
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from operate.shapes.settings import SettingsPreview, WebhookName
    from shared.postgres import database

_COLUMNS: Final = (
    Column("name", least=16, whole=True),
    Column("state"),
    Column("events", gives=2, least=12),
    Column("sent", right=True),
    Column("last sent", gives=1),
    Column("url", gives=3, least=16),
    Column("trouble", gives=4, least=16),
)
_NOT_TAKEN: Final = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `webhooks` and its verbs to the command line."""
    parser = subparsers.add_parser("webhooks", help="tell HTTP endpoints what becomes of mail")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("add", help="add an endpoint, which gets what happens from now on")
    verb.add_argument("name", metavar="NAME", help="its name")
    verb.add_argument("url", metavar="URL", help="where requests go")
    verb.add_argument(
        "--event", dest="events", action="append", choices=KINDS, help="a kind of events; may be given again (all)"
    )
    verb.add_argument("--where", default="", metavar="CONDITION", help="which recipients, as in `pillarbox queue list`")
    verb.add_argument(
        "--secret",
        dest="secrets",
        action="append",
        default=[],
        metavar="PLACE",
        help="file:PATH or env:NAME, where workers find the secret; may be given again (one is made and printed)",
    )
    verb.add_argument("--private", action="store_true", help="allow addresses that only our own networks reach")
    verb.add_argument(
        "--batch", type=between(1, LARGEST_BATCH), default=1, metavar="N", help="the most events in one request (1)"
    )
    settings.add_options(verb)
    finish(verb, add, acting=True)

    finish(verbs.add_parser("list", help="list endpoints, and how far each has come"), list_endpoints, acting=True)

    finish(_named(verbs, "test", "send the event `test` now, and print the answer"), test, acting=True)

    verb = _named(verbs, "replay", "send events of the past once more, with the ids they had")
    verb.add_argument("--since", required=True, metavar="TIME", help="2026-11-20T08:30, or 2h for two hours ago")
    verb.add_argument("--until", metavar="TIME", help="its end (now)")
    finish(verb, replay, acting=True)

    verb = _named(verbs, "enable", "let an endpoint have events again, where it was; it is tried at once")
    verb.add_argument("--skip", action="store_true", help="and forget what has happened until now")
    settings.add_options(verb)
    finish(verb, enable, acting=True)

    verb = _named(verbs, "disable", "let an endpoint have no events until it is enabled")
    add_reason(verb, "why; `list` shows it", default="disabled by an operator")
    settings.add_preview(verb)
    finish(verb, disable, acting=True)

    verb = _named(verbs, "rotate", "make a new secret, which signs beside the last one")
    settings.add_options(verb)
    finish(verb, rotate, acting=True)

    verb = _named(verbs, "remove", "forget an endpoint")
    settings.add_options(verb)
    finish(verb, remove, acting=True)


def add(options: argparse.Namespace) -> int:
    """Add an endpoint."""
    wanted = Wanted(
        options.name,
        options.url,
        options.events or KINDS,
        options.where,
        options.secrets,
        options.private,
        options.batch,
    )
    made = _ask(options, lambda connection: endpoints.add(connection, by(options), wanted, dry_run=options.dry_run))
    return settings.tell(
        options,
        made,
        lambda done: (
            f"{done.name} is added; audit {done.audit}"
            + (f"; its secret, which is not shown again:\n{done.secret}" if done.secret else "")
        ),
    )


def list_endpoints(options: argparse.Namespace) -> int:
    """Print every endpoint."""
    rows = _ask(options, endpoints.listed)
    if options.json:
        records.lines({key: value for key, value in fields(row).items() if key != "now"} for row in rows)
        return 0
    Table(_COLUMNS).print(
        (row.name, row.state, row.events, row.sent, row.last_sent, row.url, row.reason or row.error or "")
        for row in rows
    )
    if not rows:
        print("no endpoints")
    return 0


def test(options: argparse.Namespace) -> int:
    """Send a test, and print the answer; status 1 if it was not taken."""
    limit = load_queued(options.config / "queued.yaml").webhooks.timeout
    tested = _ask(options, lambda connection: probe.probe(connection, options.name, limit))
    words = f"{options.name}: {tested.error or 'took the event ' + tested.id}"
    records.tell(words, {"name": options.name, **tested._asdict()}, as_json=options.json)
    return _NOT_TAKEN if tested.error else 0


def replay(options: argparse.Namespace) -> int:
    """Send events once more."""
    since, until = _time(options.since, "--since"), _time(options.until, "--until") if options.until else None
    end = _ask(options, lambda connection: endpoints.replay(connection, options.name, since, until))
    words = f"{options.name} gets its events from {since.isoformat()} to {end.isoformat()} once more"
    return records.tell(words, {"name": options.name, "since": since, "until": end}, as_json=options.json)


def enable(options: argparse.Namespace) -> int:
    """Let an endpoint have events again."""
    how = {"skip": options.skip, "dry_run": options.dry_run}
    done = _ask(options, lambda connection: endpoints.enable(connection, by(options), options.name, **how))
    return _told(options, done, "is enabled")


def disable(options: argparse.Namespace) -> int:
    """Let an endpoint have no events."""
    done = _ask(
        options,
        lambda connection: endpoints.disable(connection, by(options), options.name, dry_run=options.dry_run),
    )
    return _told(options, done, "is disabled")


def rotate(options: argparse.Namespace) -> int:
    """Make a new secret."""
    made = _ask(
        options, lambda connection: endpoints.rotate(connection, by(options), options.name, dry_run=options.dry_run)
    )
    return settings.tell(
        options,
        made,
        lambda done: f"{done.name}: audit {done.audit}; the new secret, which is not shown again:\n{done.secret}",
    )


def remove(options: argparse.Namespace) -> int:
    """Forget an endpoint."""
    done = _ask(
        options, lambda connection: endpoints.remove(connection, by(options), options.name, dry_run=options.dry_run)
    )
    return _told(options, done, "is removed")


def _named(verbs: Any, name: str, meaning: str) -> argparse.ArgumentParser:
    verb: argparse.ArgumentParser = verbs.add_parser(name, help=meaning)
    verb.add_argument("name", metavar="NAME", help="an endpoint of `list`")
    return verb


def _told(options: argparse.Namespace, done: WebhookName | SettingsPreview, what: str) -> int:
    return settings.tell(options, done, lambda done: f"{done.name} {what}; audit {done.audit}")


def _time(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) - duration(text)
        except (argparse.ArgumentTypeError, OverflowError):
            allowed = "2026-11-20T08:30, or a duration such as 2h"
            raise Refused(f"{option}: {show(text)} is not a time; allowed: {allowed}") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    return one_connection.ask(one_connection.configured(options), "pillarbox webhooks", work)
