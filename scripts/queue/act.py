"""act — asks for a change of the recipients that match a condition, and shows what was done

Owns: the options of an acting command, its preview, the question, the bar and the result.
Guarantees: nothing happens without `--yes` or a yes at a terminal, nor without a condition unless `--all`. Ctrl-C says
    what was done, and what can be done about it.
Raises: PillarboxError for errors that an operator can correct.
See: operate/queue/act.py, which does it; sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from operate.queue import act as operation
from operate.queue.undo import UNDOABLE
from scripts.options import count
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.reason import add_reason, by
from scripts.output.records import fields
from scripts.output.table import Column, Table
from scripts.queue.query import add_condition
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from operate.queue.act import Change, Done, Plan, Watch
    from shared.postgres import database

_PREVIEW: Final = (
    Column("id", right=True),
    Column("state"),
    Column("recipient", least=30, whole=True),
    Column("received", gives=2),
    Column("sender", gives=1, least=20, whole=True),
    Column("last_error", gives=3, least=12),
)


def add_acting(verb: argparse.ArgumentParser) -> None:
    """The options of verbs that act on what fits a condition."""
    add_condition(verb, all_=True)
    verb.add_argument("--limit", type=count, metavar="N", help="at most N recipients, in order of arrival")
    add_consent(verb)


def add_consent(verb: argparse.ArgumentParser) -> None:
    """The options of every verb that acts: leave to do it, and why."""
    consent.add_consent(verb)
    add_reason(verb)


async def act(connection: database.Connection, options: argparse.Namespace, change: Change) -> int:
    """Do it, or say what would be done; the exit status."""
    everything, limit = options.all, options.limit
    plan = await operation.plan(connection, change, options.condition, everything=everything, limit=limit)
    if not options.yes:
        _preview(options, plan, await plan.sample(connection))
        if not await consent.agreed(options, change.verb, wanted=plan.wanted):
            return 0
    done = await operation.act(connection, by(options), plan, watched(quiet=options.json))
    tell(options, change, done)
    return 0


def watched(*, quiet: bool) -> Watch:
    """Show how far a change has come, and what was done when Ctrl-C ends it."""

    @contextmanager
    def watch(change: Change, done: Done) -> Iterator[Callable[[], object]]:
        with told_if_interrupted(change, done), progress(change.said, done.wanted, quiet=quiet) as bar:
            yield lambda: bar.update(bar.task_ids[0], completed=min(done.wanted, done.done + done.skipped))

    return watch


def told_if_interrupted(change: Change, done: Done) -> AbstractContextManager[None]:
    """Ctrl-C says what was done, and what can be done about it."""

    def words() -> str:
        undo = f"`pillarbox queue undo {done.audit}` changes them back, " if change.verb in UNDOABLE else ""
        return (
            f"{change.said} {done.done} of {how_many(done.wanted, 'recipient')}; "
            f"audit {done.audit} has the exact number; {undo}the same command does the rest"
        )

    return telling(words)


def tell(options: argparse.Namespace, change: Change, done: Done) -> None:
    """Show the result."""
    if options.json:
        records.one(done.as_shape().model_dump())
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


def _preview(options: argparse.Namespace, plan: Plan, sample: list[database.Row]) -> None:
    counted = plan.counted
    if options.json:
        totals = {"wanted": plan.wanted, "messages": counted.messages, "bytes": counted.bytes}
        records.one({**totals, "sample": [fields(row) for row in sample]})
        return
    if sample:
        Table(_PREVIEW).print([getattr(row, column.name) for column in _PREVIEW] for row in sample)
    sending = f", {counted.sending} of them claimed by a worker" if counted.sending else ""
    first = f"the first {options.limit} of " if (options.limit or counted.recipients) < counted.recipients else ""
    recipients, messages = how_many(counted.recipients, "recipient"), how_many(counted.messages, "message")
    print(f"{plan.change.verb}: {first}{recipients} of {messages}, {counted.bytes / 2**20:.1f} MiB{sending}")
