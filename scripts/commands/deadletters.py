"""deadletters — `pillarbox deadletters`: lists, shows, requeues and watches mail that finished without success

Owns: the options, the tables for people and the JSON for programs; scripts/commands/watch_deadletters.py does the
    watching.
Guarantees: without --yes or a yes at a terminal nothing is requeued. It sends each dead letter once more and not twice,
    and works in batches, each committed: cut off in the middle, the same command does the rest.
Raises: PillarboxError for errors that an operator can correct.
See: docs/how-to/handle-dead-letters.md; sql/schema/19_deadletter.sql.
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from operate.condition.ids import is_message, is_msgid, is_recipient
from operate.queue.history import with_msgid
from scripts import one_connection
from scripts.commands import watch_deadletters
from scripts.options import count, duration, finish
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.records import fields
from scripts.output.table import Column, Table, pairs
from scripts.queue.show import TRIES
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.mail.results import DEAD, RESULTS
from shared.postgres import database, timeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_BATCH: Final = 1000
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

    async def read(connection: database.Connection) -> tuple[list[Any], list[Any]]:
        wanted = _filter(options)
        letters = await database.fetch(connection, "deadletters_list", ids=None, limit=options.limit, **wanted)
        return letters, await database.fetch(connection, "deadletters_count", **wanted)

    letters, counted = _ask(options, read)
    counts = {row.result: row.letters for row in counted}
    if options.json:
        records.lines(map(fields, letters))
        return 0
    Table(_COLUMNS).print(map(_cells, letters))
    told = ", ".join(f"{count} {result}" for result, count in counts.items())
    print(f"{told or 'none'}; shown: {len(letters)}")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print one dead letter and its tries."""

    async def read(connection: database.Connection) -> tuple[list[Any], list[Any]]:
        everything: dict[str, Any] = {"since": None, "results": None, "domain": None, "limit": 1}
        ids = await _ids(connection, [options.id])
        letters = await database.fetch(connection, "deadletters_list", ids=ids, **everything)
        if not letters:
            return [], []
        tries = await database.fetch(connection, "deadletters_attempts", id=letters[0].id, message=letters[0].message)
        return letters, tries

    letters, tries = _ask(options, read)
    if not letters:
        raise PillarboxError(f"deadletters show: {options.id} is not a dead letter in the history")
    if options.json:
        records.one({**fields(letters[0]), "attempts": [fields(each) for each in tries]})
        return 0
    pairs([*letters[0]._asdict().items(), ("meaning", RESULTS[letters[0].result].meaning)])
    if tries:
        print()
        Table(TRIES).print((t.ts, t.retry_count, t.outcome, t.remote, t.reply_text) for t in tries)
    return 0


def requeue(options: argparse.Namespace) -> int:
    """Send once more what was named or matches; without --yes show it and ask."""
    wanted = _filter(options)
    if not options.ids and options.limit is None and not any(wanted.values()):
        raise PillarboxError(
            "deadletters requeue: give numbers or at least one of --result, --domain, --since, --limit"
        )

    async def preview(connection: database.Connection) -> tuple[list[int], list[Any], str | None]:
        since = await timeline.current(connection)
        given = await _ids(connection, options.ids) if options.ids else None
        await _refuse_unknown(connection, given or [])
        rows = await database.fetch(connection, "deadletters_wanted", ids=given, limit=options.limit, **wanted)
        ids = [row.id for row in rows]
        first: dict[str, Any] = {"since": None, "results": None, "domain": None, "limit": _SHOWN}
        return ids, await database.fetch(connection, "deadletters_list", ids=ids[:_SHOWN], **first), since

    async def act(connection: database.Connection) -> dict[str, int]:
        if (now := await timeline.current(connection)) != since:
            raise PillarboxError(
                f"deadletters requeue: another server has taken over (timeline {now}, it was {since}), and numbers may "
                "have been given again; nothing was changed: look again"
            )
        done = {"requeued": 0, "gone": 0}
        words = "the same command does the rest and sends nothing twice"
        with telling(lambda: f"requeued {done['requeued']} of {how_many(len(ids), 'dead letter')}; {words}"):
            for start in range(0, len(ids), _BATCH):
                [row] = await database.fetch(connection, "deadletters_requeue", ids=ids[start : start + _BATCH])
                done["requeued"] += row.requeued
                done["gone"] += row.gone
        return done

    ids, letters, since = _ask(options, preview)
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
        records.one({"wanted": len(ids), **done})
        return 0
    print(
        f"requeued {done['requeued']} of {how_many(len(ids), 'dead letter')}; "
        f"{how_many(done['gone'], 'has no body', 'have no body')} "
        "(older than maintenance.keep.deadletters)"
    )
    return 0


async def _ids(connection: database.Connection, given: list[str]) -> list[int]:
    """Numbers in the archive: those that were given, and those of the messages that were given."""
    messages = [UUID(each) for each in given if is_message(each)]
    for msgid in filter(is_msgid, given):
        messages += await with_msgid(connection, msgid)
    rows = await database.fetch(connection, "deadletters_of", messages=messages) if messages else []
    return [*(int(each) for each in given if is_recipient(each)), *(row.id for row in rows)]


def _id(text: str) -> str:
    if is_recipient(text) or is_message(text) or is_msgid(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is neither a number in the archive nor a message id")


async def _refuse_unknown(connection: database.Connection, ids: list[int]) -> None:
    if unknown := await database.fetch(connection, "deadletters_unknown", ids=ids):
        listed = ", ".join(str(row.id) for row in unknown)
        raise PillarboxError(
            f"deadletters requeue: not dead letters in the history: {listed}; nothing was changed; "
            "`pillarbox deadletters list` lists them"
        )


def watch(options: argparse.Namespace) -> int:
    """Print dead letters as they happen."""
    asyncio.run(watch_deadletters.run(one_connection.configured(options), options.since, partial(print, flush=True)))
    return 0


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--result", action="append", choices=DEAD, help="only with this result; may be given again")
    parser.add_argument("--domain", help="only for recipients of this domain")
    parser.add_argument("--since", type=_ago, metavar="AGO", help="only what finished within: 1d, 2h30m")
    parser.add_argument("--limit", type=count, metavar="N", help="at most N")


def _filter(options: argparse.Namespace) -> dict[str, Any]:
    return {"since": options.since, "results": options.result, "domain": options.domain}


def _ago(text: str) -> datetime:
    """The instant this long ago; durations as in the configuration."""
    return datetime.now(UTC) - min(duration(text), timedelta(days=36_000))


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
