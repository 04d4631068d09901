"""look — recipients in the queue: listed, counted by column or by age, shown one by one with the reason why they wait

Guarantees: reads only. Lists are read a portion at a time, so that a million rows take no more memory than a thousand.
Raises: Refused and NotThere.
See: Postfix qshape(1), the model for the counts by age.
"""

from __future__ import annotations

import difflib
from dataclasses import replace
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate.condition.compile import Compiled
from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.doctor.checks import span
from operate.errors import NotThere, Refused
from operate.mime.render import fields_of
from operate.queue.query import STATUSES, asked
from operate.shapes.mail import Attempt, Destination, Group, Recipient, RecipientWithTries
from shared import masking
from shared.config.condition.fields import ALIASES, FIELDS, METADATA, find
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import datetime

    from operate.queue.query import Query

_PORTION: Final = 1000
_STRETCH: Final = 100_000  # ids
_QUICK: Final = 0.05  # seconds for a stretch
_BOUNDS: Final = (5, 10, 20, 40, 80, 160, 320, 640, 1280)  # minutes, as qshape's
#: The heads of the counts by age: up to so many minutes, and longer.
AGES: Final = (*(str(bound) for bound in _BOUNDS), f"{_BOUNDS[-1]}+")
_LATE: Final = timedelta(minutes=1)  # due for longer, mail waits for something else than its turn
_PARKED: Final = "waiting: "  # how last_error begins of mail that was put back without a try
_HEADER: Final = 64 * 1024  # octets of a message read for its header
_UNGROUPED: Final = frozenset({"time", "age", "wait"})


async def recipients(
    connection: database.Connection, asking: Query, *, after: int, limit: int
) -> AsyncIterator[list[database.Row]]:
    """At most `limit` recipients that fit, after this id, in portions; rows have the fields of Recipient."""
    shown = 0
    while shown < limit:
        portion = min(limit - shown, _PORTION)
        rows = await asking.fetch(connection, "queue_list", after=after, statuses=list(STATUSES), limit=portion)
        if not rows:
            break
        yield rows
        shown, after = shown + len(rows), rows[-1].id


class First(NamedTuple):
    """The first that fit, and the id after which nothing was looked at; None: everything was."""

    rows: list[database.Row]
    reached: int | None


async def first(
    connection: database.Connection, asking: Query, *, after: int, limit: int, seconds: float | None
) -> First:
    """At most `limit` recipients that fit, after this id, looked for in stretches of ids until this time has passed.

    A stretch has at most _STRETCH recipients, and doubles as long as it is read quickly. seconds: None for no end.
    """
    rows: list[database.Row] = []
    span, began = _STRETCH, monotonic()
    [ends] = await database.fetch(connection, "queue_ids", after=after)
    at = after if ends.least is None else ends.least - 1
    while ends.least is not None and at < ends.greatest:
        looked = monotonic()
        text = f"{asking.sql.text} AND q.id <= %(upto)s::bigint"
        within = replace(asking, sql=Compiled(text, {**asking.sql.values, "upto": at + span}))
        async for portion in recipients(connection, within, after=at, limit=limit - len(rows)):
            rows += portion
        at += span
        if len(rows) >= limit:
            return First(rows, None)
        if seconds is not None and monotonic() - began > seconds and at < ends.greatest:
            return First(rows, at)
        if monotonic() - looked < _QUICK:
            span *= 2
    return First(rows, None)


async def count(connection: database.Connection, asking: Query) -> int:
    """How many recipients fit."""
    [counted] = await asking.fetch_of_all(connection, "queue_count_some", most=None)
    found: int = counted.recipients
    return found


async def grouped(
    connection: database.Connection, names: Sequence[str], words: Sequence[str], limit: int
) -> list[Group]:
    """How many fit, by the values of these columns, at most so many groups, the largest first."""
    values: dict[str, Any] = {}
    columns = ", ".join(_column(name, values) for name in names)
    asking = await asked(connection, words)
    rows = await asking.fetch_of_all(connection, "queue_group", columns=columns, limit=limit, **values)
    return [
        Group(
            value=dict(zip(names, row.value, strict=True)),
            recipients=row.recipients,
            messages=row.messages,
            bytes=row.bytes,
            oldest=row.oldest,
            next_retry=row.next_retry,
        )
        for row in rows
    ]


def check_columns(names: Sequence[str]) -> None:
    """Refuse a column by which nothing can be grouped."""
    for name in names:
        _column(name, {})


def _column(name: str, values: dict[str, Any]) -> str:
    """A column to group by, as SQL; metadata keys are bound."""
    field = find(name)
    if field is None or field.kind in _UNGROUPED:
        allowed = [known for known, each in FIELDS.items() if each.kind not in _UNGROUPED]
        near = difflib.get_close_matches(name.lower(), [*allowed, *ALIASES], 1)
        suggestion = f"; did you mean {near[0]}?" if near else ""
        columns = f"{', '.join(allowed)}, metadata.KEY{suggestion}"
        raise Refused(f"queue group: {masking.show(name)} is not a column to group by; allowed: {columns}")
    if name.lower().startswith(METADATA):
        values[f"key{len(values)}"] = name[len(METADATA) :]
        return f"q.metadata->>%(key{len(values) - 1})s::text"
    side = ALIASES.get(name.lower(), name.lower())
    if field.kind == "state":
        return "q.state"
    if field.kind == "address":
        return f"coalesce(q.{side}localpart || '@' || q.{side}domain, '<>')"
    return f"({field.column})::text"


async def shape(connection: database.Connection, words: Sequence[str], limit: int) -> list[Destination]:
    """What waits by destination and age: all of it first, then the fullest destinations."""
    asking = await asked(connection, words)
    rows = await asking.fetch(connection, "queue_shape", bounds=list(_BOUNDS), limit=limit)
    return [
        Destination(
            domain=row.domain,
            total=int(row.total),
            minutes={age: row.counts.get(str(bucket), 0) for bucket, age in enumerate(AGES)},
        )
        for row in rows
    ]


class Seen(NamedTuple):
    """A recipient, its tries, its message's header, and why it waits."""

    row: database.Row
    tries: list[database.Row]
    header: dict[str, str]
    why: str

    def as_shape(self) -> RecipientWithTries:
        """The same as one form."""
        tries = [Attempt.from_row(each) for each in self.tries]
        return RecipientWithTries(
            **Recipient.from_row(self.row).model_dump(), why=self.why, header=self.header, attempts=tries
        )


async def show(connection: database.Connection, id_: str) -> list[Seen]:
    """One recipient by its number, or each of a message by its id or Message-ID; refused where there is none."""
    if not is_recipient(id_) and not is_message(id_) and not is_msgid(id_):
        raise Refused(f"queue show: {masking.show(id_)} is neither the number of a recipient nor a message id")
    asking = await asked(connection, [id_])
    rows = await asking.fetch(connection, "queue_list", after=0, statuses=list(STATUSES), limit=_PORTION)
    if not rows:
        raise NotThere(
            f"{id_} is not in the queue", f"queue show: {id_} is not in the queue: see `pillarbox queue trace {id_}`"
        )
    return [await _seen(connection, row, asking.now) for row in rows]


async def _seen(connection: database.Connection, row: database.Row, now: datetime) -> Seen:
    tries = await database.fetch(connection, "deadletters_attempts", id=row.id, message=row.message)
    content = await database.fetch(connection, "queue_content", message=row.message, most=_HEADER)
    return Seen(row, tries, fields_of(content[0].content) if content else {}, why(row, now))


def why(row: database.Row, now: datetime) -> str:
    """Why a recipient is not delivered yet, in one sentence."""
    wait = span(row.next_retry - now)
    due = "due: a worker takes it as soon as it has room"
    if (late := now - row.next_retry) > _LATE:
        doctor = f"`pillarbox doctor` says whether one serves partition {row.partition or 'NULL'}"
        due = f"due for {span(late)}, but no worker has taken it: {doctor}"
    if row.state in {"SCHEDULED", "DEFER"} and (row.last_error or "").startswith(_PARKED):
        return f"{row.last_error}; it is looked at again in {wait}"
    return {
        "HOLD": f"on hold in {masking.show(row.quarantine)}" if row.quarantine else "on hold",
        "SENDING": f"claimed by {row.worker}",
        "ACTIVE": due,
        "SCHEDULED": f"to be sent in {wait}",
        "DEFER": f"tried {how_many(row.retry_count, 'time')}; the next try is in {wait}",
        "DELETE": "deleted: the next round of maintenance finishes it",
        "BOUNCE": "bounced: the next round of maintenance finishes it",
    }[row.state]
