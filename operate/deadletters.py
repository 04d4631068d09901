"""deadletters — mail that finished without success: listed, shown, sent once more

Guarantees: each dead letter is sent once more and not twice, in batches, each committed: cut off in the middle, the
    same request does the rest.
Raises: Refused and its kinds.
See: docs/how-to/operate/handle-dead-letters.md; sql/schema/19_deadletter.sql.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.errors import NotNow, NotThere, Refused
from operate.queue.act import endless
from operate.queue.history import with_msgid
from operate.shapes.mail import Attempt, DeadLetter, DeadLetterWithTries
from shared import masking
from shared.mail import address
from shared.mail.domain import spellings
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from operate.queue.act import Enough

_BATCH: Final = 1000
#: Nothing is asked for that finished longer ago.
LONGEST: Final = timedelta(days=36_000)


class Wanted(NamedTuple):
    """Dead letters that match every value that is not None: finished since, with these results, of these domains."""

    since: datetime | None = None
    results: list[str] | None = None
    domains: list[str] | None = None


_ALL: Final = Wanted()


def domains(asked: str | None) -> list[str] | None:
    """A recipient's domain in every spelling that history may have; None: any domain."""
    if asked is None:
        return None
    try:
        return list(spellings(address.parse(f"any@{asked}").domain))
    except address.AddressRefused as error:
        why = f"domain: {masking.show(asked)}: {error}; allowed: a domain, or an address literal such as [192.0.2.1]"
        raise Refused(why, f"--{why}") from None


async def listed(
    connection: database.Connection,
    wanted: Wanted = _ALL,
    limit: int | None = None,
    *,
    ids: Sequence[int] | None = None,
    before: tuple[datetime, int] | None = None,
) -> list[database.Row]:
    """Dead letters, the latest first; rows have the fields of shapes.mail.DeadLetter.

    ids: among these alone. before: only those that finished before this one, to go on in a list.
    """
    finished, id_ = before or (None, None)
    return await database.fetch(
        connection,
        "deadletters_list",
        ids=None if ids is None else list(ids),
        limit=limit,
        before=finished,
        before_id=id_,
        **wanted._asdict(),
    )


async def counted(connection: database.Connection, wanted: Wanted) -> dict[str, int]:
    """How many there are with each result."""
    rows = await database.fetch(connection, "deadletters_count", **wanted._asdict())
    return {row.result: row.letters for row in rows}


class Seen(NamedTuple):
    """A dead letter and every try at it."""

    letter: database.Row
    tries: list[database.Row]

    def as_shape(self) -> DeadLetterWithTries:
        """The same as one form."""
        letter = DeadLetter.from_row(self.letter).model_dump()
        return DeadLetterWithTries(**letter, attempts=[Attempt.from_row(each) for each in self.tries])


async def show(connection: database.Connection, id_: str) -> Seen:
    """One dead letter, by its number in the archive or the id of its message."""
    letters = await listed(connection, limit=1, ids=await _ids(connection, [id_]))
    if not letters:
        raise NotThere(f"deadletters show: {id_} is not a dead letter in the history")
    [letter] = letters
    tries = await database.fetch(connection, "deadletters_attempts", id=letter.id, message=letter.message)
    return Seen(letter, tries)


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be sent once more."""

    ids: list[int]
    timeline: str | None  # of the server that the numbers are of


@dataclass(slots=True)
class Done:
    """How far it has come. gone: those that have no body any more; rest: those that were not come to."""

    requeued: int = 0
    gone: int = 0
    rest: int = 0


async def plan(connection: database.Connection, given: Sequence[str], wanted: Wanted, limit: int | None = None) -> Plan:
    """What would be sent once more: these, by number or message, or all that match; at least one must be said."""
    if not given and limit is None and not any(wanted):
        raise Refused(
            "deadletters requeue: nothing is named; allowed: ids, or at least one of results, domain, since, limit",
            "deadletters requeue: give numbers or at least one of --result, --domain, --since, --limit",
        )
    since = await timeline.current(connection)
    ids = await _ids(connection, given) if given else None
    await _refuse_unknown(connection, ids or [])
    rows = await database.fetch(connection, "deadletters_wanted", ids=ids, limit=limit, **wanted._asdict())
    return Plan([row.id for row in rows], since)


async def requeue(connection: database.Connection, planned: Plan, done: Done, enough: Enough = endless) -> Done:
    """Send once more what was planned; `done` says at any instant how far it has come."""
    if (now := await timeline.current(connection)) != planned.timeline:
        raise NotNow(
            f"deadletters requeue: another server has taken over (timeline {now}, it was {planned.timeline}), and "
            "numbers may have been given again; nothing was changed: look again"
        )
    for start in range(0, len(planned.ids), _BATCH):
        if start and enough():
            done.rest = len(planned.ids) - start
            break
        [row] = await database.fetch(connection, "deadletters_requeue", ids=planned.ids[start : start + _BATCH])
        done.requeued += row.requeued
        done.gone += row.gone
    return done


def is_id(text: str) -> bool:
    """Whether this names a dead letter: a number in the archive, a message id or a Message-ID."""
    return is_recipient(text) or is_message(text) or is_msgid(text)


async def _ids(connection: database.Connection, given: Sequence[str]) -> list[int]:
    """Numbers in the archive: those that were given, and those of the messages that were given."""
    for each in given:
        if not is_id(each):
            raise Refused(f"{masking.show(each)} is neither a number in the archive nor a message id")
    messages = [UUID(each) for each in given if is_message(each)]
    for msgid in filter(is_msgid, given):
        messages += await with_msgid(connection, msgid)
    rows = await database.fetch(connection, "deadletters_of", messages=messages) if messages else []
    return [*(int(each) for each in given if is_recipient(each)), *(row.id for row in rows)]


async def _refuse_unknown(connection: database.Connection, ids: list[int]) -> None:
    unknown: list[Any] = await database.fetch(connection, "deadletters_unknown", ids=ids)
    if unknown:
        why = f"deadletters requeue: not dead letters in the history: {', '.join(str(row.id) for row in unknown)}"
        raise NotThere(
            f"{why}; nothing was changed",
            f"{why}; nothing was changed; `pillarbox deadletters list` lists them",
        )
