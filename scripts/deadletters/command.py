"""command — `pillarbox deadletters`: lists, shows, requeues and watches mail that finished without success

Owns: the options, the tables for people and the JSON for programs; scripts/deadletters/watch.py does the
    watching.
Guarantees: without --yes or a yes at a terminal nothing is requeued. It sends each dead letter once more and not twice,
    and works in batches, each committed: cut off in the middle, the same command does the rest.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/operate/handle-dead-letters.md; sql/schema/19_deadletter.sql.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from operate import deadletters
from operate.deadletters import Done, Wanted
from scripts import one_connection
from scripts.deadletters.watch import run
from scripts.options import count, duration, finish
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.records import fields
from scripts.output.table import Column, Table, pairs
from scripts.queue.show import TRIES
from shared import masking
from shared.how_many import how_many
from shared.mail.results import DEAD, RESULTS
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from operate.deadletters import Plan

_SHOWN: Final = 20  # in a preview
_NAME: Final = "pillarbox deadletters"
_COLUMNS: Final = (
    Column("id", right=True),
    Column("result"),
    Column("recipient", least=24, whole=True),
    Column("finished", gives=3),
    Column("tries", gives=1, right=True),
    Column("again", gives=2),
    Column("last_error", gives=4, least=12),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `deadletters` and its verbs to the command line."""
    parser = subparsers.add_parser("deadletters", help="list, requeue and watch mail that finished without success")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("list", help="dead letters, the latest first, and their number by result")
    _add_filter(verb)
    finish(verb, list_letters, acting=True)

    verb = verbs.add_parser("show", help="one dead letter with every try")
    verb.add_argument("id", type=_id, metavar="ID", help="its number in the archive, or the id of its message")
    finish(verb, show, acting=True)

    verb = verbs.add_parser("requeue", help="send dead letters once more: by number, or all that match")
    verb.add_argument("ids", type=_id, nargs="*", metavar="ID", help="numbers in the archive, or ids of messages")
    _add_filter(verb)
    consent.add_consent(verb)
    finish(verb, requeue, acting=True)

    verb = verbs.add_parser("watch", help="one JSON line for each dead letter as it happens, until Ctrl-C")
    verb.add_argument("--since", type=_ago, metavar="AGO", help="start this far back: 1d, 2h30m (default: now)")
    finish(verb, watch)


def list_letters(options: argparse.Namespace) -> int:
    """Print the dead letters that match, and how many there are with each result."""

    async def read(connection: database.Connection) -> tuple[list[database.Row], dict[str, int]]:
        wanted = _wanted(options)
        letters = await deadletters.listed(connection, wanted, options.limit)
        return letters, await deadletters.counted(connection, wanted)

    letters, counts = _ask(options, read)
    if options.json:
        records.lines(map(fields, letters))
        return 0
    Table(_COLUMNS).print(map(_cells, letters))
    by_result = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"{by_result or 'none'}; shown: {len(letters)}")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one dead letter and its tries."""
    letter, tries = _ask(options, lambda connection: deadletters.show(connection, options.id))
    if options.json:
        records.one({**fields(letter), "attempts": [fields(each) for each in tries]})
        return 0
    pairs([*letter._asdict().items(), ("meaning", RESULTS[letter.result].meaning)])
    if tries:
        print()
        Table(TRIES).print((t.ts, t.retry_count, t.outcome, t.remote, t.reply_text) for t in tries)
    return 0


def requeue(options: argparse.Namespace) -> int:
    """Send once more what was named or matches; without --yes show it and ask."""

    async def preview(connection: database.Connection) -> tuple[Plan, list[database.Row]]:
        planned = await deadletters.plan(connection, options.ids, _wanted(options), options.limit)
        return planned, await deadletters.listed(connection, limit=_SHOWN, ids=planned.ids[:_SHOWN])

    async def act(connection: database.Connection) -> Done:
        done = Done()
        words = "the same command does the rest and sends nothing twice"
        with telling(lambda: f"requeued {done.requeued} of {how_many(len(planned.ids), 'dead letter')}; {words}"):
            return await deadletters.requeue(connection, planned, done)

    planned, letters = _ask(options, preview)
    ids = planned.ids
    if not options.yes:
        if options.json:
            records.one({"wanted": len(ids), "ids": ids})
        else:
            Table(_COLUMNS).print(map(_cells, letters))
            print(f"would requeue {how_many(len(ids), 'dead letter')}")
        if not asyncio.run(consent.agreed(options, "deadletters requeue")):
            return 0
    done = _ask(options, act)
    if options.json:
        records.one({"wanted": len(ids), "requeued": done.requeued, "gone": done.gone})
        return 0
    print(
        f"requeued {done.requeued} of {how_many(len(ids), 'dead letter')}; "
        f"{how_many(done.gone, 'has no body', 'have no body')} "
        "(older than maintenance.keep.deadletters)"
    )
    return 0


def _id(text: str) -> str:
    if deadletters.is_id(text):
        return text
    raise argparse.ArgumentTypeError(f"{masking.show(text)} is neither a number in the archive nor a message id")


def watch(options: argparse.Namespace) -> int:
    """Print dead letters as they happen."""
    asyncio.run(run(one_connection.configured(options), options.since, partial(print, flush=True)))
    return 0


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--result", action="append", choices=DEAD, help="only with this result; may be given again")
    parser.add_argument("--domain", help="only for recipients of this domain")
    parser.add_argument("--since", type=_ago, metavar="AGO", help="only what finished within: 1d, 2h30m")
    parser.add_argument("--limit", type=count, metavar="N", help="at most N")


def _wanted(options: argparse.Namespace) -> Wanted:
    return Wanted(options.since, options.result, deadletters.domains(options.domain))


def _ago(text: str) -> datetime:
    """The instant this long ago; durations as in the configuration."""
    return datetime.now(UTC) - min(duration(text), deadletters.LONGEST)


def _ask[T](options: argparse.Namespace, question: Callable[[database.Connection], Awaitable[T]]) -> T:
    """Ask the database on one connection; what it refuses is one line."""
    return one_connection.ask(one_connection.configured(options), _NAME, question, _refused)


def _refused(error: BaseException) -> str:
    return f"deadletters: {database.reason(error)}"


def _cells(letter: database.Row) -> tuple[object, ...]:
    """One dead letter as a row of the table."""
    again = "requeued" if letter.requeued else "possible" if letter.body else "body gone"
    tries = letter.retry_count
    return letter.id, letter.result, letter.recipient, letter.finished, tries, again, letter.last_error
