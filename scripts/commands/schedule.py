"""schedule — `pillarbox schedule`: send mail regularly, or once at a later time

Owns: add, list, remove, enable and disable, for people and for programs.
Guarantees: a message that cannot be sent is refused when it is added, naming the wrong option. This command sends
    nothing itself: workers do, from then on, whether this host is up or not.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/schedule-mail.md; queued/schedule.py; sql/schema/16_schedule.sql.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from operate.transports import check_option
from scripts import one_connection
from scripts.commands import schedule_mail
from scripts.options import finish
from scripts.output import records
from scripts.output.records import fields
from scripts.output.table import Column, Table
from shared import cron
from shared.errors import PillarboxError
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
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
_CLOCKS_APART: Final = timedelta(days=1)  # at most, between PostgreSQL's and this host's
_LEAST, _MOST = -9, 9  # priorities, as in the table


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
    if not _LEAST <= options.priority <= _MOST:
        raise PillarboxError(f"--priority: {options.priority} is out of range; allowed: {_LEAST} to {_MOST}")
    if options.id is None and options.every is not None:
        raise PillarboxError("schedule add: ID is missing; allowed: with --every a name to list and remove it by")
    if options.id is not None and not _ID.fullmatch(options.id):
        raise PillarboxError(f"ID: {show(options.id)}; allowed: 1 to 64 letters, digits, underscores and hyphens")
    check_option(options.config, [options.transport])
    _check_time(options)
    mail = schedule_mail.read_mail(options.sender, options.recipients, options.file)
    return _ask(options, partial(_add_recurring if options.every is not None else _add_once, options, mail))


def _check_time(options: argparse.Namespace) -> None:
    """Refuse a time that cannot be used before the message is typed; by PostgreSQL's clock it is judged afterwards."""
    now = datetime.now(UTC)
    if options.every is not None:
        schedule_mail.first_occurrence(options.every, options.timezone, now)
    else:
        schedule_mail.instant(options.at, options.timezone, now - _CLOCKS_APART)


async def _add_recurring(options: argparse.Namespace, mail: schedule_mail.Mail, connection: database.Connection) -> int:
    occurrence = schedule_mail.first_occurrence(options.every, options.timezone, await _now(connection))
    made = await database.fetch(
        connection,
        "schedule_add",
        id=options.id,
        cron=options.every,
        timezone=options.timezone,
        sender=mail.sender,
        recipients=list(mail.recipients),
        content=schedule_mail.recurring(mail.content),
        transportid=options.transport,
        priority=options.priority,
        smtputf8=mail.smtputf8,
        next_at=occurrence,
    )
    if not made:
        raise PillarboxError(f"ID: there is a schedule {show(options.id)} already; remove it first, or use another ID")
    words = f"{options.id}: {cron.explain(options.every)}, {options.timezone}; first {_shown(occurrence)}"
    return _tell(options, words, id=options.id, next=occurrence.isoformat())


async def _add_once(options: argparse.Namespace, mail: schedule_mail.Mail, connection: database.Connection) -> int:
    at = schedule_mail.instant(options.at, options.timezone, await _now(connection))
    [row] = await database.fetch(
        connection,
        "schedule_once",
        sender=mail.sender,
        recipients=list(mail.recipients),
        content=mail.content,
        key=options.id and f"schedule:{options.id}:once",
        deliver_at=at,
        transportid=options.transport,
        priority=options.priority,
        jobid=options.id,
        smtputf8=mail.smtputf8,
    )
    return _tell(options, f"message {row.message} is sent {_shown(at)}", message=str(row.message), at=at.isoformat())


def list_schedules(options: argparse.Namespace) -> int:
    """Print every schedule."""
    rows = _ask(options, lambda connection: database.fetch(connection, "schedule_list"))
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
    return _done(options, "schedule_remove", "is removed")


def enable(options: argparse.Namespace) -> int:
    """Send it again; occurrences that were missed while it was disabled are not sent."""

    async def work(connection: database.Connection) -> int:
        known = await _known(connection, options.id)
        try:
            occurrence = cron.following(known.cron, known.timezone, await _now(connection))
        except cron.CronRefused as error:
            raise PillarboxError(f"{options.id}: {error}; remove it and add it again") from None
        await database.fetch(connection, "schedule_enable", id=options.id, next_at=occurrence)
        words = f"{options.id} is enabled; next {_shown(occurrence)}"
        return _tell(options, words, id=options.id, next=occurrence.isoformat())

    return _ask(options, work)


def disable(options: argparse.Namespace) -> int:
    """Send it no more."""
    return _done(options, "schedule_pause", "is disabled")


def _done(options: argparse.Namespace, query: str, words: str) -> int:
    """Run a query on a schedule that is there, and say so."""

    async def work(connection: database.Connection) -> int:
        await _known(connection, options.id)
        await database.fetch(connection, query, id=options.id)
        return _tell(options, f"{options.id} {words}", id=options.id)

    return _ask(options, work)


async def _known(connection: database.Connection, name: str) -> database.Row:
    rows = {row.id: row for row in await database.fetch(connection, "schedule_list")}
    if name not in rows:
        raise PillarboxError(f"ID: no schedule {show(name)}; allowed: {', '.join(rows) or 'there are none'}")
    return rows[name]


async def _now(connection: database.Connection) -> datetime:
    """By the server's clock, which decides when mail is due."""
    [row] = await database.fetch(connection, "schedule_clock")
    now: datetime = row.now
    return now


def _ask[Answer](options: argparse.Namespace, work: Callable[[database.Connection], Awaitable[Answer]]) -> Answer:
    """Do the work on one connection to the configured database."""
    return one_connection.ask(one_connection.configured(options), "pillarbox schedule", work)


def _tell(options: argparse.Namespace, words: str, **values: str) -> int:
    return records.tell(words, values, as_json=options.json)


def _shown(at: datetime | None) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S %Z") if at else "never"
