"""act — changes the recipients that match a condition, in batches, with an audit row

Owns: what a change is, and its order: count, audit row, batches, end.
Guarantees: nothing happens without a condition unless everything is asked for. Each batch is one transaction that
    changes recipients, keeps their earlier state, and counts them: killed at any instant, the audit row says exactly
    what was done, and the same again does the rest. Recipients are locked in id order and for one batch only, so
    workers pass them over meanwhile; recipients that a worker has claimed are skipped where a change would be lost.
    Recipients that came after they were counted are not touched.
Raises: Refused and its kinds.
See: sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate.condition.ids import are_ids
from operate.errors import NotNow, NotThere, Refused
from operate.queue.query import STATUSES, asked
from operate.shapes.mail import Changed, Preview, Recipient
from shared.how_many import how_many
from shared.masking import show
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from operate.queue.query import Query

BATCH: Final = 1000
_SAMPLE: Final = 10
#: The state in which each command that can be undone leaves its recipients: in another one they were moved since.
LEFT: Final = {
    "hold": ("HOLD",),
    "release": ("DELIVER",),
    "recover": ("HOLD",),
    "rescan": ("DELIVER",),
    "retry": ("DELIVER",),
    "delay": ("DELIVER",),
    "priority": ("HOLD", "DELIVER"),
    "move": ("HOLD", "DELIVER"),
}
#: What a verb acts on, by the statuses it takes.
_ACTS_ON: Final = {
    ("HOLD",): "mail on hold",
    ("DELIVER",): "mail that is not on hold, deleted or bounced",
    ("HOLD", "DELIVER"): "mail that is not deleted or bounced",
}
_TRIES: Final = 100  # of a batch whose rows another session moves at the same moment


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a verb.

    verb: the audit's word. query: the statement that changes locked recipients by `ids`, and returns id and partid.
    statuses: what it acts on. sending: whether it acts on what a worker has in hand. values: the query's own.
    argument: their value in the audit. said: "released", for people. resumes: what the same command has done
    before it was cut off still fits its condition, and must not be done twice. retests: whether workers are to test
    destinations that do not answer, instead of leaving them alone.
    """

    verb: str
    query: str
    statuses: tuple[str, ...]
    said: str
    sending: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    argument: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False
    retests: bool = False


@dataclass(frozen=True, slots=True)
class By:
    """The person who acts, beside the principal that the connection acts for, and the reason.

    operator: the user at the operating system, where one typed a command. reason: one sentence for the audit row; in
    another form it raises Refused, whoever asks.
    """

    operator: str | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        if self.reason is not None:
            checked_reason(self.reason)


@dataclass(slots=True)
class Done:
    """How far a change has come. gone: what fitted when it began and no more when its turn came."""

    audit: int
    wanted: int
    done: int = 0
    skipped: int = 0
    timeline: str | None = None  # of the server that the ids are of
    cut: int | None = None  # the last id looked at, where it was stopped before its end

    @property
    def gone(self) -> int:
        """Delivered, or changed by another command, meanwhile."""
        return 0 if self.cut is not None else max(0, self.wanted - self.done - self.skipped)

    def as_shape(self) -> Changed:
        """The result."""
        return Changed(audit=self.audit, wanted=self.wanted, done=self.done, skipped=self.skipped, gone=self.gone)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change would act on. counted: all that fits, as query queue_count has it; wanted: how many are meant."""

    change: Change
    asking: Query
    counted: database.Row
    wanted: int
    timeline: str | None

    async def sample(self, connection: database.Connection) -> list[database.Row]:
        """The first of these recipients."""
        statuses = list(self.change.statuses)
        return await self.asking.fetch(connection, "queue_list", after=0, statuses=statuses, limit=_SAMPLE)

    async def preview(self, connection: database.Connection) -> Preview:
        """What would be changed."""
        sample = [Recipient.from_row(row) for row in await self.sample(connection)]
        return Preview(wanted=self.wanted, messages=self.counted.messages, bytes=self.counted.bytes, sample=sample)


class Span(NamedTuple):
    """The ids one batch looks at: above `after`, up to `last`, at most `batch` of them."""

    after: int
    last: int
    batch: int


#: Goes around the batches of a change, and is called after each of them; the command line shows a bar by it.
type Watch = Callable[[Change, Done], AbstractContextManager[Callable[[], object]]]


#: Asked after each batch whether the change has taken long enough; then it stops as one that is cut off.
type Enough = Callable[[], bool]


def endless() -> bool:
    """A change that may take as long as it takes."""
    return False


@contextmanager
def unwatched(_: Change, __: Done) -> Iterator[Callable[[], object]]:
    """A change that goes unseen."""
    yield lambda: None


def checked_reason(text: str) -> str:
    """A reason for the audit row; raises Refused."""
    if len(text) <= 1000 and text.isprintable():  # noqa: PLR2004 - a sentence, not a report
        return text
    raise Refused(f"{show(text)} is not a valid reason; allowed: up to 1000 printable characters")


async def plan(
    connection: database.Connection,
    change: Change,
    words: Sequence[str],
    *,
    everything: bool = False,
    limit: int | None = None,
) -> Plan:
    """What a change would act on: the recipients of these words, at most `limit` of them in order of arrival."""
    asking = await asked(connection, words)
    if asking.everything and not everything:
        raise Refused(
            f"{change.verb}: a condition is missing; allowed: ids, a condition, or all recipients if that is said",
            f"{change.verb}: give a condition, or --all for every recipient",
        )
    since = await timeline.current(connection)
    [counted] = await asking.fetch_of_all(connection, "queue_count", statuses=list(change.statuses))
    wanted = min(counted.recipients, limit or counted.recipients)
    if not wanted and are_ids(words):
        await _refuse(connection, words, asking, change)
    return Plan(change, asking, counted, wanted, since)


async def _refuse(connection: database.Connection, ids: Sequence[str], asking: Query, change: Change) -> None:
    """A change has nothing to do with any of these ids: their mail has left the queue, or is in another state."""
    rows = await asking.fetch(connection, "queue_list", after=0, statuses=list(STATUSES), limit=_SAMPLE)
    if not rows:
        why = f"{change.verb}: {', '.join(ids)} not in the queue"
        raise NotThere(why, f"{why}: see `pillarbox queue trace {ids[0].partition(',')[0]}`")
    found = ", ".join(f"{row.id} is {row.state}" for row in rows)
    raise NotNow(f"{change.verb}: {found}; allowed: {_ACTS_ON[change.statuses]}")


async def act(
    connection: database.Connection, by: By, planned: Plan, watch: Watch = unwatched, enough: Enough = endless
) -> Done:
    """Change what was planned."""
    done = Done(0, planned.wanted, timeline=planned.timeline)
    return await carry_out(connection, by, planned.change, planned.asking, done, planned.counted.last, watch, enough)


async def carry_out(
    connection: database.Connection,
    by: By,
    change: Change,
    asking: Query,
    done: Done,
    last: int,
    watch: Watch = unwatched,
    enough: Enough = endless,
) -> Done:
    """Change up to `done.wanted` recipients with ids up to `last`, under an audit row of their own; what was done.

    Where it took `enough`, `done.cut` is the id up to which it came, and its audit row has no end.
    """
    done.audit = await begin(connection, by, change, str(asking.condition), done.wanted)
    if change.retests:  # before any of the mail is due; once, so that each dead destination is tested once
        with suppress(*database.REFUSAL):
            await database.fetch(connection, "wakeup_retry")
    with watch(change, done) as moved:
        after = 0
        while after < last and done.done < done.wanted:
            await same_ids(connection, done)
            span = Span(after, last, min(BATCH, done.wanted - done.done))
            seen, changed, skipped = await change_batch(connection, asking, change, done.audit, span)
            if seen is None:
                break
            after = seen
            done.done += changed
            done.skipped += skipped
            moved()
            if enough() and after < last and done.done < done.wanted:
                done.cut = after
                return done
    await database.fetch(connection, "audit_finish", id=done.audit)
    return done


async def same_ids(connection: database.Connection, done: Done) -> None:
    """Go no further where another history of the database answers: ids up to the last may be of other mail by now.

    Only behind a pooler does a connection outlive the server that it led to.
    """
    now = await timeline.current(connection)
    if done.timeline is not None and now != done.timeline:
        raise NotNow(
            f"audit {done.audit}: another server has taken over (timeline {now}, it was {done.timeline}), and ids may "
            f"have been given again; done: {how_many(done.done, 'recipient')}; run the command again for the rest"
        )


async def change_batch(
    connection: database.Connection, asking: Query, change: Change, audit: int, span: Span
) -> tuple[int | None, int, int]:
    """One batch in one transaction: the highest id looked at (None: there was none), how many changed and skipped."""
    for _ in range(_TRIES):
        try:
            async with connection.transaction():
                statuses = list(change.statuses)
                rows = await asking.fetch(connection, "queue_take", statuses=statuses, **span._asdict())
                if not rows:
                    return None, 0, 0
                ids = [row.id for row in rows if change.sending or not row.sending]
                if change.resumes:
                    before = await database.fetch(connection, "queue_copied", audit=audit, ids=ids)
                    ids = sorted(set(ids) - {row.id for row in before})
                partids = await apply(connection, change, audit, ids)
                [added] = await database.fetch(connection, "audit_add", id=audit, ids=ids, seen=len(rows))
        except database.CONFLICT:
            continue  # a worker moved or finished one of the rows at that moment
        await wake(connection, partids)
        return rows[-1].id, added.changed, len(rows) - added.changed
    raise NotNow(f"audit {audit}: the rows are busy; the same command does the rest")


async def apply(connection: database.Connection, change: Change, audit: int, ids: list[int]) -> list[str]:
    """Change locked recipients, remembering what they were; the partitions to wake after COMMIT."""
    if not ids:
        return []
    await database.fetch(connection, "queue_remember", audit=audit, ids=ids)
    rows = await database.fetch(connection, change.query, ids=ids, **change.values)
    return sorted(
        {row.partid or "" for row in rows} if change.verb not in {"hold", "delete", "bounce", "recover"} else set()
    )


async def wake(connection: database.Connection, partids: list[str]) -> None:
    """Wake the workers of these partitions, if that can be done: they look by themselves at their next poll."""
    if partids:
        with suppress(*database.REFUSAL):
            await database.fetch(connection, "wakeup_notify", partids=partids)


async def begin(
    connection: database.Connection, by: By, change: Change, condition: str, wanted: int, undoes: int | None = None
) -> int:
    """Write the audit row before anything is changed; its number."""
    [row] = await database.fetch(
        connection,
        "audit_begin",
        operator=by.operator,
        verb=change.verb,
        condition=condition,
        argument=json.dumps(change.argument),
        reason=by.reason,
        undoes=undoes,
        wanted=wanted,
    )
    audit: int = row.id
    return audit
