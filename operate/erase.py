"""erase — deletes what names a person's address from the queue, from history and from what is beside them

Owns: the spellings of an address, and the order of the steps in PostgreSQL.
Guarantees: each step is a short transaction, a day of history at a time, and may be repeated. The audit row has a hash
    of the address and never the address; of recipients only numbers are kept, until all is done. Queued mail is
    deleted only where that was asked for, and never while a worker is sending it. PostgreSQL judges who may: operators.
Raises: Refused and NotNow.
See: sql/schema/24_erasure.sql; sql/README.md, "Erasing a person".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from operate.errors import NotNow, Refused
from shared.how_many import how_many
from shared.mail import address, suppression
from shared.mail.domain import comparable, spellings
from shared.masking import show
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import date

#: Tables of history by day; the archive last, since a crash between them must leave what tells whose the attempts are.
HISTORIES: Final = ("attempts", "archive")
_BATCH: Final = 10_000
#: What may stand before and after an address in a text, so that it is not part of another one.
_BEFORE, _AFTER = "(^|[^A-Za-z0-9._%+-])", "($|[^A-Za-z0-9_-])"


@dataclass(frozen=True, slots=True)
class Person:
    """An address to erase: as suppressions spell it, in parts, and as a pattern for texts (for PostgreSQL and RE2)."""

    target: str
    localpart: str
    domains: tuple[str, ...]
    pattern: str

    @classmethod
    def of(cls, text: str) -> Person:
        """The person of an address as it is written."""
        try:
            found = address.parse(text)
        except address.AddressRefused as error:
            raise Refused(f"ADDRESS: {show(text)}: {error}; allowed: local-part@domain") from None
        localpart = found.localpart.lower()
        domains = spellings(comparable(found.domain))
        either = "|".join(re.escape(f"{localpart}@{domain}") for domain in domains)
        return cls(suppression.target(text), localpart, domains, f"{_BEFORE}(?:{either}){_AFTER}")

    def without(self, text: str) -> str:
        """A text without the address."""
        once = re.sub(self.pattern, r"\1(erased)\2", text, flags=re.IGNORECASE)
        return re.sub(self.pattern, r"\1(erased)\2", once, flags=re.IGNORECASE)

    @property
    def parts(self) -> dict[str, Any]:
        """The address in parts, for a query."""
        return {"localpart": self.localpart, "domains": list(self.domains)}


@dataclass(frozen=True, slots=True)
class Found:
    """What names an address in PostgreSQL. sending: the queued that a worker is sending. unfinished: an audit row."""

    queued_to: int
    queued_from: int
    sending: int
    sent_to: int
    sent_from: int
    notices: int
    suppressed: bool
    schedules: tuple[str, ...]
    reports: int
    commands: int
    unfinished: int | None

    @property
    def queued(self) -> int:
        """Queued recipients, to and from."""
        return self.queued_to + self.queued_from

    def check(self, *, queued: bool) -> None:
        """Refuse where something stands in the way."""
        if self.schedules:
            named = ", ".join(self.schedules)
            raise NotNow(
                f"recurring mail names the address: {named}",
                f"erase: recurring mail names the address: {named}; `pillarbox schedule remove ID` first",
            )
        if self.queued and not queued:
            raise NotNow(
                f"{how_many(self.queued, 'recipient')} to or from the address are queued",
                f"erase: nothing was changed: {how_many(self.queued_to, 'recipient')} queued to the address and "
                f"{self.queued_from} from it; wait for delivery, or --queued deletes them unsent and without notice",
            )


@dataclass(frozen=True, slots=True)
class Rest:
    """What was deleted beside history. kept: bodies that other recipients need."""

    bodies: int
    kept: int
    notices: int
    reports: int
    commands: int


async def look(connection: database.Connection, person: Person) -> Found:
    """Count what would be erased; history a day at a time."""
    [beside] = await database.fetch(
        connection, "erasure_count", target=person.target, **person.parts, pattern=person.pattern
    )
    sent_to = sent_from = 0
    async for _, since, until in _days(connection, ["archive"]):
        [day] = await database.fetch(connection, "erasure_count_day", since=since, until=until, **person.parts)
        sent_to, sent_from = sent_to + day.sent_to, sent_from + day.sent_from
    counted = beside._asdict() | {"schedules": tuple(beside.schedules)}
    return Found(sent_to=sent_to, sent_from=sent_from, **counted)


async def begin(
    connection: database.Connection,
    person: Person,
    operator: str,
    reason: str | None,
    argument: dict[str, Any],
    wanted: int,
) -> int:
    """Begin, or go on with what was cut off; the number of the audit row."""
    [made] = await database.fetch(
        connection,
        "erasure_begin",
        target=person.target,
        pattern=person.pattern,
        operator=operator,
        reason=reason,
        argument=json.dumps(argument),
        wanted=wanted,
    )
    number: int = made.id
    return number


async def find(connection: database.Connection, erasure: int, person: Person) -> int:
    """Delete queued mail, and collect the finished recipients; how many queued ones were deleted."""
    [queued] = await database.fetch(connection, "erasure_queue", erasure=erasure, **person.parts)
    if queued.sending:
        raise NotNow(
            f"{how_many(queued.sending, 'recipient')} are being sent",
            f"erase: {how_many(queued.sending, 'recipient')} being sent by a worker at this moment; "
            "the same command does the rest in a minute",
        )
    async for _, since, until in _days(connection, ["archive"]):
        await database.fetch(connection, "erasure_find", erasure=erasure, since=since, until=until, **person.parts)
    deleted: int = queued.deleted
    return deleted


async def add(connection: database.Connection, erasure: int, recipients: Sequence[tuple[int, str]]) -> None:
    """Add recipients that only the lake has, by number and message."""
    for start in range(0, len(recipients), _BATCH):
        portion = recipients[start : start + _BATCH]
        ids, messages = zip(*portion, strict=True)
        await database.fetch(connection, "erasure_add", erasure=erasure, ids=list(ids), messages=list(messages))


async def known(connection: database.Connection, erasure: int) -> list[tuple[int, str]]:
    """The recipients that were collected, by number and message; from here on they are deleted."""
    return [(row.id, row.message) for row in await database.fetch(connection, "erasure_known", erasure=erasure)]


async def delete(
    connection: database.Connection, erasure: int, person: Person, at: Callable[[str], None]
) -> tuple[int, int]:
    """Delete the recipients from history; how many rows were deleted, and in how many a text was changed."""
    deleted = changed = 0
    async for history, since, until in _days(connection, HISTORIES):
        at(history)
        [day] = await database.fetch(
            connection,
            "erasure_history",
            erasure=erasure,
            history=history,
            since=since,
            until=until,
            pattern=person.pattern,
        )
        deleted, changed = deleted + day.deleted, changed + day.changed
    return deleted, changed


async def rest(connection: database.Connection, erasure: int, person: Person, *, suppress: bool) -> Rest:
    """Delete what is beside history; a suppression stays, by its hash."""
    [row] = await database.fetch(
        connection,
        "erasure_rest",
        erasure=erasure,
        suppress=suppress,
        target=person.target,
        **person.parts,
        pattern=person.pattern,
    )
    return Rest(**row._asdict())


async def finish(connection: database.Connection, erasure: int) -> None:
    """Note that nothing is left."""
    await database.fetch(connection, "erasure_finish", erasure=erasure)


async def _days(
    connection: database.Connection, histories: Sequence[str]
) -> AsyncIterator[tuple[str, datetime, datetime]]:
    for history in histories:
        for row in await database.fetch(connection, "analytics_days", table=history):
            since = _midnight(row.day)
            yield history, since, since + timedelta(days=1)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)
