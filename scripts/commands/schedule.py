"""schedule — `pillarbox schedule`: send mail regularly, or once at a later time

Owns: add, list, remove, enable and disable, for people and for programs.
Guarantees: a message that cannot be sent is refused when it is added, naming the wrong option. This command sends
    nothing itself: workers do, from then on, whether this host is up or not.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/schedule-mail.md; queued/schedule.py; sql/schema/16_schedule.sql.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate import schedule
from operate.schedule import When
from scripts import one_connection
from scripts.commands import schedule_mail
from scripts.options import finish
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared import cron

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from operate.shapes.settings import ScheduleChanged, ScheduledOnce
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
    verb.add_argument("--priority", type=int, default=0, metavar="N", help="-9 to 9, urgent above 0 (0)")
    finish(verb, add, acting=True)

    finish(verbs.add_parser("list", help="every schedule, the next one first"), list_schedules, acting=True)
    for name, run, text in (
        ("remove", remove, "forget a schedule; mail it has queued is still sent"),
        ("enable", enable, "send it again, from its next occurrence on"),
        ("disable", disable, "stop sending it until it is enabled"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("id", metavar="ID")
        finish(verb, run, acting=True)


def add(options: argparse.Namespace) -> int:
    """Add a schedule, or queue one message for later."""
    when = When(options.id, options.every, options.at, options.timezone, options.transport, options.priority)
    schedule.check(options.config, when)
    mail = schedule_mail.read_mail(options.sender, options.recipients, options.file)
    if options.every is None:
        once = _ask(options, lambda connection: schedule.once(connection, when, mail))
        return _tell(options, f"message {once.message} is sent {_shown(once.at)}", once)
    made = _ask(options, lambda connection: schedule.recurring(connection, when, mail))
    words = f"{made.id}: {cron.explain(options.every)}, {options.timezone}; first {_shown(made.next)}"
    return _tell(options, words, made)


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
    gone = _ask(options, lambda connection: schedule.remove(connection, options.id))
    return _tell(options, f"{gone.id} is removed", gone)


def enable(options: argparse.Namespace) -> int:
    """Send it again; occurrences that were missed while it was disabled are not sent."""
    made = _ask(options, lambda connection: schedule.enable(connection, options.id))
    return _tell(options, f"{made.id} is enabled; next {_shown(made.next)}", made)


def disable(options: argparse.Namespace) -> int:
    """Send it no more."""
    made = _ask(options, lambda connection: schedule.disable(connection, options.id))
    return _tell(options, f"{made.id} is disabled", made)


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    """Do the work on one connection to the configured database."""
    return one_connection.ask(one_connection.configured(options), "pillarbox schedule", work)


def _tell(options: argparse.Namespace, words: str, done: ScheduleChanged | ScheduledOnce) -> int:
    return records.tell(words, done.model_dump(exclude_unset=True), as_json=options.json)


def _shown(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S %Z") if at else "never"
