"""schedule — `pillarbox schedule`: send mail regularly, or once at a later time

Owns: add, list, remove, enable and disable, for people and for programs.
Guarantees: a message that cannot be sent is refused when it is added, naming the wrong option. This command sends
    nothing itself: workers do, from then on, whether this host is up or not.
Raises: PillarboxError for errors that an operator can correct.
See: operate/settings/schedule.py, which does it; docs/how-to/send/schedule-mail.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.settings import schedule
from operate.settings.schedule import When
from operate.shapes.settings import ScheduledOncePreview
from scripts import one_connection
from scripts.commands import schedule_mail
from scripts.options import finish, priority
from scripts.output import records, settings
from scripts.output.reason import by
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared import cron

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from operate.shapes.settings import ScheduledOnce
    from shared.postgres import database

_COLUMNS: Final = (
    Column("id"),
    Column("next", gives=4),
    Column("every"),
    Column("to", least=20, whole=True),
    Column("zone", gives=2),
    Column("last", gives=1),
    Column("from", gives=3, least=16, whole=True),
    Column("state", least=8),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `schedule` and its verbs to the command line."""
    parser = subparsers.add_parser("schedule", help="send mail regularly, or once at a later time")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("add", help="send recurring mail by a cron expression, or one message later")
    verb.add_argument("id", nargs="?", metavar="ID", help="its name, needed with --every")
    when = verb.add_mutually_exclusive_group(required=True)
    when.add_argument("--every", metavar="CRON", help='minute hour day month weekday, such as "0 9 * * mon"')
    when.add_argument(
        "--at",
        metavar="TIME",
        help="send once at this time, such as 2026-12-24T18:00; with an ID, repeating the command queues nothing more",
    )
    verb.add_argument(
        "--timezone", default="UTC", metavar="ZONE", help="the time zone of --every or --at (default UTC)"
    )
    verb.add_argument("--from", dest="sender", required=True, metavar="ADDRESS", help='"" is the null sender')
    verb.add_argument(
        "--to", dest="recipients", required=True, action="append", metavar="ADDRESS", help="may be given again"
    )
    verb.add_argument("--file", default="-", metavar="MAIL.eml", help="the message, header and all (standard input)")
    verb.add_argument("--transport", default="default", metavar="ID", help="of queued.yaml (default)")
    verb.add_argument("--priority", type=priority, default=0, metavar="N", help="-9 to 9, urgent above 0 (0)")
    settings.add_options(verb)
    finish(verb, add, acting=True)

    finish(verbs.add_parser("list", help="every schedule, the next one first"), list_schedules, acting=True)
    for name, run, text in (
        ("remove", remove, "forget a schedule; mail it has queued is still sent"),
        ("enable", enable, "send it again, from its next occurrence on"),
        ("disable", disable, "stop sending it until it is enabled"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("id", metavar="ID")
        settings.add_options(verb)
        finish(verb, run, acting=True)


def add(options: argparse.Namespace) -> int:
    """Add a schedule, or queue one message for later."""
    when = When(options.id, options.every, options.at, options.timezone, options.transport, options.priority)
    schedule.check(options.config, when)
    mail = schedule_mail.read_mail(options.sender, options.recipients, options.file)
    every, who, dry_run = options.every, by(options), options.dry_run
    if every is None:
        return _tell_once(
            options, _ask(options, lambda connection: schedule.once(connection, when, mail, dry_run=dry_run))
        )
    made = _ask(options, lambda connection: schedule.recurring(connection, who, when, mail, dry_run=dry_run))
    said = f"{cron.explain(every)}, {options.timezone}"
    return settings.tell(
        options, made, lambda done: f"{done.id}: {said}; first {_shown(done.next)}; audit {done.audit}"
    )


def _tell_once(options: argparse.Namespace, once: ScheduledOnce | ScheduledOncePreview) -> int:
    """Print what was queued, or would be."""
    if isinstance(once, ScheduledOncePreview):
        words = f"a message to {', '.join(once.recipients)} would be sent {_shown(once.at)}; nothing was queued"
    else:
        words = f"message {once.message} is sent {_shown(once.at)}"
    return records.tell(words, once.model_dump(), as_json=options.json)


def list_schedules(options: argparse.Namespace) -> int:
    """Print every schedule."""
    rows = _ask(options, schedule.listed)
    if options.json:
        records.lines(map(fields, rows))
        return 0
    Table(_COLUMNS).print(map(_cells, rows))
    if not rows:
        print("no schedules")
    return 0


def _cells(row: database.Row) -> tuple[object, ...]:
    """One schedule as a row of the table."""
    state = "enabled" if row.enabled else f"disabled: {row.error}" if row.error else "disabled"
    coming = row.next_at if row.enabled else None
    return row.id, coming, row.cron, row.recipients, row.timezone, row.last_at, row.sender or "<>", state


def remove(options: argparse.Namespace) -> int:
    """Forget a schedule."""
    who, dry_run = by(options), options.dry_run
    gone = _ask(options, lambda connection: schedule.remove(connection, who, options.id, dry_run=dry_run))
    return settings.tell(options, gone, lambda done: f"{done.id} is removed; audit {done.audit}")


def enable(options: argparse.Namespace) -> int:
    """Send it again; occurrences that were missed while it was disabled are not sent."""
    who, dry_run = by(options), options.dry_run
    made = _ask(options, lambda connection: schedule.enable(connection, who, options.id, dry_run=dry_run))
    return settings.tell(
        options, made, lambda done: f"{done.id} is enabled; next {_shown(done.next)}; audit {done.audit}"
    )


def disable(options: argparse.Namespace) -> int:
    """Send it no more."""
    who, dry_run = by(options), options.dry_run
    made = _ask(options, lambda connection: schedule.disable(connection, who, options.id, dry_run=dry_run))
    return settings.tell(options, made, lambda done: f"{done.id} is disabled; audit {done.audit}")


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    """Do the work on one connection to the configured database."""
    return one_connection.ask(one_connection.configured(options), "pillarbox schedule", work)


def _shown(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S %Z") if at else "never"
