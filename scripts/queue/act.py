"""act — changes the recipients that match a condition, in batches, after a preview and with an audit row

Owns: the options of an acting command, and its order: count and show, consent, audit row, batches, end.
Guarantees: nothing happens without `--yes` or a yes at a terminal, nor without a condition unless `--all`. Each batch
    is one transaction that changes recipients, keeps their earlier state, and counts them: killed at any instant, the
    audit row says exactly what was done, and the same command does the rest. Recipients are locked in id order and for
    one batch only, so workers pass them over meanwhile; recipients that a worker has claimed are skipped where a change
    would be lost. Recipients that came after the preview are not touched.
Raises: PillarboxError for errors that an operator can correct.
See: sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from operate.condition.ids import are_ids
from scripts.one_connection import system_user
from scripts.options import count
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.records import fields
from scripts.output.table import Column, Table
from scripts.queue.query import STATUSES, add_condition, asked
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from scripts.queue.query import Query

BATCH: Final = 1000
_SAMPLE: Final = 10
_PREVIEW: Final = (
    Column("id", right=True),
    Column("state"),
    Column("recipient", least=30, whole=True),
    Column("received", gives=2),
    Column("sender", gives=1, least=20, whole=True),
    Column("last_error", gives=3, least=12),
)
#: The state in which each command that can be undone leaves its recipients: in another one they were moved since.
LEFT: Final = {
    "hold": ("HOLD",),
    "release": ("DELIVER",),
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
    before it was cut off still fits its condition, and must not be done twice.
    """

    verb: str
    query: str
    statuses: tuple[str, ...]
    said: str
    sending: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    argument: dict[str, Any] = field(default_factory=dict)
    resumes: bool = False


def add_acting(verb: argparse.ArgumentParser) -> None:
    """The options of verbs that act on what fits a condition."""
    add_condition(verb, all_=True)
    verb.add_argument("--limit", type=count, metavar="N", help="at most N recipients, in order of arrival")
    add_consent(verb)


def add_consent(verb: argparse.ArgumentParser) -> None:
    """The options of every verb that acts: leave to do it, and why."""
    consent.add_consent(verb)
    verb.add_argument("--reason", type=_sentence, metavar="TEXT", help="why, for the audit row")


def _sentence(text: str) -> str:
    if len(text) <= 1000 and text.isprintable():  # noqa: PLR2004 - a sentence, not a report
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not a valid reason; allowed: up to 1000 printable characters")


@dataclass(slots=True)
class Done:
    """How far a command has come. gone: what fitted when it began and no more when its turn came."""

    audit: int
    wanted: int
    done: int = 0
    skipped: int = 0
    timeline: str | None = None  # of the server that the ids are of

    @property
    def gone(self) -> int:
        """Delivered, or changed by another command, meanwhile."""
        return max(0, self.wanted - self.done - self.skipped)


class Span(NamedTuple):
    """The ids one batch looks at: above `after`, up to `last`, at most `batch` of them."""

    after: int
    last: int
    batch: int


async def act(connection: database.Connection, options: argparse.Namespace, change: Change) -> int:
    """Do it, or say what would be done; the exit status."""
    asking = await asked(connection, options.condition)
    if asking.everything and not options.all:
        raise PillarboxError(f"{change.verb}: give a condition, or --all for every recipient")
    statuses = list(change.statuses)
    since = await timeline.current(connection)
    [counted] = await asking.fetch(connection, "queue_count", statuses=statuses)
    wanted = min(counted.recipients, options.limit or counted.recipients)
    if not wanted and are_ids(options.condition):
        raise PillarboxError(await _why_not(connection, options.condition, asking, change))
    if not options.yes:
        sample = await asking.fetch(connection, "queue_list", after=0, statuses=statuses, limit=_SAMPLE)
        _preview(options, change, counted, sample)
        if not await consent.agreed(options, change.verb, wanted=wanted):
            return 0
    done = await carry_out(connection, options, change, asking, Done(0, wanted, timeline=since), counted.last)
    tell(options, change, done)
    return 0


async def _why_not(connection: database.Connection, ids: list[str], asking: Query, change: Change) -> str:
    """Why a verb has nothing to do with any of these ids: their mail has left the queue, or is in another state."""
    rows = await asking.fetch(connection, "queue_list", after=0, statuses=list(STATUSES), limit=_SAMPLE)
    if not rows:
        first = ids[0].partition(",")[0]
        return f"{change.verb}: {', '.join(ids)} not in the queue: see `pillarbox queue trace {first}`"
    found = ", ".join(f"{row.id} is {row.state}" for row in rows)
    return f"{change.verb}: {found}; allowed: {_ACTS_ON[change.statuses]}"


async def carry_out(
    connection: database.Connection,
    options: argparse.Namespace,
    change: Change,
    asking: Query,
    done: Done,
    last: int,
) -> Done:
    """Change up to `done.wanted` recipients with ids up to `last`, under an audit row of their own; what was done."""
    done.audit = await begin(connection, options, change, str(asking.condition), done.wanted)
    with told_if_interrupted(change, done), progress(change.said, done.wanted, quiet=options.json) as bar:
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
            bar.update(bar.task_ids[0], completed=min(done.wanted, done.done + done.skipped))
    await database.fetch(connection, "audit_finish", id=done.audit)
    return done


def told_if_interrupted(change: Change, done: Done) -> AbstractContextManager[None]:
    """Ctrl-C says what was done, and what can be done about it."""

    def words() -> str:
        undo = f"`pillarbox queue undo {done.audit}` changes them back, " if change.verb in LEFT else ""
        return (
            f"{change.said} {done.done} of {how_many(done.wanted, 'recipient')}; "
            f"audit {done.audit} has the exact number; {undo}the same command does the rest"
        )

    return telling(words)


async def same_ids(connection: database.Connection, done: Done) -> None:
    """Go no further where another history of the database answers: ids up to the last may be of other mail by now.

    Only behind a pooler does a connection outlive the server that it led to.
    """
    now = await timeline.current(connection)
    if done.timeline is not None and now != done.timeline:
        raise PillarboxError(
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
    raise PillarboxError(f"audit {audit}: the rows are busy; the same command does the rest")


async def apply(connection: database.Connection, change: Change, audit: int, ids: list[int]) -> list[str]:
    """Change locked recipients, remembering what they were; the partitions to wake after COMMIT."""
    if not ids:
        return []
    await database.fetch(connection, "queue_remember", audit=audit, ids=ids)
    rows = await database.fetch(connection, change.query, ids=ids, **change.values)
    return sorted({row.partid or "" for row in rows} if change.verb not in {"hold", "delete", "bounce"} else set())


async def wake(connection: database.Connection, partids: list[str]) -> None:
    """Wake the workers of these partitions, if that can be done: they look by themselves at their next poll."""
    if partids:
        with suppress(*database.REFUSAL):
            await database.fetch(connection, "wakeup_notify", partids=partids)


async def begin(
    connection: database.Connection,
    options: argparse.Namespace,
    change: Change,
    condition: str,
    wanted: int,
    undoes: int | None = None,
) -> int:
    """Write the audit row before anything is changed; its number."""
    [row] = await database.fetch(
        connection,
        "audit_begin",
        operator=system_user(),
        verb=change.verb,
        condition=condition,
        argument=json.dumps(change.argument),
        reason=options.reason,
        undoes=undoes,
        wanted=wanted,
    )
    audit: int = row.id
    return audit


def tell(options: argparse.Namespace, change: Change, done: Done) -> None:
    """Show the result."""
    if options.json:
        told = {"audit": done.audit, "wanted": done.wanted, "done": done.done, "skipped": done.skipped}
        records.one({**told, "gone": done.gone})
        return
    why = "done before the same command was cut off" if change.resumes else "claimed by a worker"
    skipped = f"; {done.skipped} skipped, {why}" if done.skipped else ""
    gone = f"; {done.gone} no longer matched when their turn came" if done.gone else ""
    print(f"{change.said} {done.done} of {how_many(done.wanted, 'recipient')}{skipped}{gone}; audit {done.audit}")


def progress(said: str, total: int, *, quiet: bool) -> Progress:
    """A bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=quiet or not sys.stderr.isatty(),
    )
    bar.add_task(said, total=total)
    return bar


def _preview(options: argparse.Namespace, change: Change, counted: database.Row, sample: list[database.Row]) -> None:
    if options.json:
        wanted = min(counted.recipients, options.limit or counted.recipients)
        told = {"wanted": wanted, "messages": counted.messages, "bytes": counted.bytes}
        records.one({**told, "sample": [fields(row) for row in sample]})
        return
    if sample:
        Table(_PREVIEW).print([getattr(row, column.name) for column in _PREVIEW] for row in sample)
    sending = f", {counted.sending} of them claimed by a worker" if counted.sending else ""
    first = f"the first {options.limit} of " if (options.limit or counted.recipients) < counted.recipients else ""
    recipients, messages = how_many(counted.recipients, "recipient"), how_many(counted.messages, "message")
    print(f"{change.verb}: {first}{recipients} of {messages}, {counted.bytes / 2**20:.1f} MiB{sending}")
