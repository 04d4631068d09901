"""command — `pillarbox recover begin|show|settle|release`: a queue that was restored from a backup

Owns: the options, the previews and the results.
Guarantees: nothing is changed without --yes or a yes at a terminal. Cut off, the same command does the rest.
Raises: PillarboxError for errors that an operator can correct.
See: operate/recovery, which does it; docs/how-to/operate/back-up-and-recover.md.
"""

from __future__ import annotations

from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from operate.recovery import begin as beginning
from operate.recovery import release as releasing
from operate.recovery import settle as settling
from operate.recovery.proof import FORMS, Proofs, read
from operate.shapes.recovery import Begun, Released, SettlePreview, Showing
from scripts import one_connection
from scripts.options import finish
from scripts.output import consent, records
from scripts.output.reason import by
from scripts.output.table import Column, Table
from scripts.queue.act import add_consent, tell, watched
from shared.errors import PillarboxError, cause
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Awaitable, Callable

_NAME: Final = "pillarbox recover"
_SAMPLE: Final = 10
_COLUMNS: Final = (
    Column("id", right=True),
    Column("result"),
    Column("recipient", least=24, whole=True),
    Column("proof", gives=1),
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `recover` and its verbs to the command line."""
    parser = subparsers.add_parser("recover", help="compare a queue that was restored from a backup, before it is sent")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    verb = verbs.add_parser("begin", help="put everything on hold, before the daemons start")
    add_consent(verb)
    finish(verb, begin, acting=True)

    finish(verbs.add_parser("show", help="what is held, and what was settled"), show, acting=True)

    verb = verbs.add_parser("settle", help="finish what was delivered since, as logs, webhooks or the old server prove")
    verb.add_argument("files", nargs="*", type=Path, metavar="FILE", help=FORMS)
    verb.add_argument("--history", metavar="URI", help="a PostgreSQL that has later history: the old server, a standby")
    add_consent(verb)
    finish(verb, settle, acting=True)

    verb = verbs.add_parser("release", help="end the recovery: what is still held becomes what it was")
    verb.add_argument("--drop-notices", action="store_true", help="forget the notifications to senders that wait")
    add_consent(verb)
    finish(verb, release, acting=True)


def begin(options: argparse.Namespace) -> int:
    """Hold everything."""

    async def act(connection: database.Connection) -> int:
        plan = await beginning.plan(connection)
        if not options.yes:
            what = f"hold {how_many(plan.plan.wanted, 'recipient')}"
            if options.json:
                records.one(_begun(plan).model_dump())
            else:
                print(f"recover: would {what}, {_beside(plan)}")
            if not await consent.agreed(options, "recover begin"):
                return 0
        done = await beginning.begin(connection, by(options), plan, watched(quiet=options.json))
        if options.json:
            records.one(_begun(done).model_dump())
            return 0
        if done.done is not None:
            tell(options, plan.plan.change, done.done)
        print(_beside(done))
        return 0

    return _ask(options, act)


def _begun(plan: beginning.Beginning) -> Begun:
    done = plan.done
    return Begun(
        wanted=plan.plan.wanted,
        schedules=plan.schedules,
        notices=plan.notices,
        ended=plan.ended,
        done=None if done is None else done.done,
        audit=None if done is None else done.audit,
    )


def _beside(plan: beginning.Beginning) -> str:
    schedules = how_many(plan.schedules, "missed schedule")
    notices = _notices(plan.notices)
    return f"{schedules} moved on to the next occurrence, {notices} kept until the release"


def _notices(count: int) -> str:
    return how_many(count, "notification to senders", "notifications to senders")


def show(options: argparse.Namespace) -> int:
    """Print the figures of the recovery under way."""

    async def look(connection: database.Connection) -> int:
        found = await releasing.look(connection)
        if found is None:
            showing = Showing(begun=None, held=0, waiting=0, settled=0, notices=0)
        else:
            showing = Showing(
                begun=found.begun,
                held=found.held,
                waiting=found.waiting,
                settled=found.settled,
                notices=found.notices,
            )
        if options.json:
            records.one(showing.model_dump())
        elif found is None:
            print("no recovery is under way")
        else:
            others = found.held - found.waiting
            print(
                f"begun {found.begun:%Y-%m-%d %H:%M:%S%z}: {how_many(found.settled, 'recipient')} settled, "
                f"{found.waiting} held until the release, {others} held for other reasons, "
                f"{_notices(found.notices)} kept"
            )
        return 0

    return _ask(options, look)


def settle(options: argparse.Namespace) -> int:
    """Finish what is proven."""
    proofs = _proofs(options.files)
    if not proofs and options.history is None:
        raise PillarboxError(
            f"recover settle: nothing proves a delivery; allowed: --history URI, or files with {FORMS}"
        )

    async def act(connection: database.Connection) -> int:
        async with _history(options.history) as history:
            plan = await settling.plan(connection, proofs, history)
        if not options.yes:
            _preview(options, plan)
            if not await consent.agreed(options, "recover settle", wanted=len(plan.settled)):
                return 0
        tell(
            options, settling.SETTLE, await settling.settle(connection, by(options), plan, watched(quiet=options.json))
        )
        if not options.json:
            _tell_rest(plan)
        return 0

    return _ask(options, act)


def _proofs(files: list[Path]) -> Proofs:
    """What all files prove; each has to prove something."""
    found = Proofs()
    for file in files:
        try:
            with file.open(encoding="utf-8", errors="replace") as lines:
                proven = read(lines)
        except OSError as error:
            raise PillarboxError(f"recover settle: {file}: cannot be read: {cause(error)}; allowed: {FORMS}") from None
        if not proven:
            raise PillarboxError(f"recover settle: {file} has no line that proves a delivery; allowed: {FORMS}")
        found.add(proven)
    return found


@asynccontextmanager
async def _history(uri: str | None) -> AsyncIterator[database.Connection | None]:
    """A connection to the database that has later history, which is only read."""
    if uri is None:
        yield None
        return
    conninfo = database.with_default(uri, "default_transaction_read_only", "on")
    connection = await database.connect(conninfo, _NAME)
    try:
        yield connection
    finally:
        await connection.close()


def _preview(options: argparse.Namespace, plan: settling.Plan) -> None:
    """What would be settled, and what would not."""
    if options.json:
        proofs = dict(Counter(each.proof for each in plan.settled))
        records.one(
            SettlePreview(
                wanted=len(plan.settled), held=plan.held, proofs=proofs, ambiguous=plan.ambiguous, absent=plan.absent
            ).model_dump()
        )
        return
    if plan.settled:
        Table(_COLUMNS).print((e.id, e.result, e.recipient, e.proof) for e in plan.settled[:_SAMPLE])
    print(f"settle {len(plan.settled)} of {how_many(plan.held, 'held recipient')}; this cannot be undone")
    _tell_rest(plan)


def _tell_rest(plan: settling.Plan) -> None:
    """What an operator has to decide."""
    if plan.ambiguous:
        ids = " ".join(map(str, plan.ambiguous[:_SAMPLE]))
        print(f"{how_many(len(plan.ambiguous), 'recipient')} stay held: a delivery fits several of them, such as {ids}")
    if plan.absent:
        some = " ".join(map(str, plan.absent[:_SAMPLE]))
        print(
            f"{how_many(len(plan.absent), 'accepted message')} of these logs came after the backup and must be "
            f"submitted again, such as {some}; --json lists all"
        )


def release(options: argparse.Namespace) -> int:
    """Put back what the recovery held."""

    async def act(connection: database.Connection) -> int:
        plan = await releasing.plan(connection)
        if not options.yes:
            what = "forget" if options.drop_notices else "send"
            if options.json:
                records.one(Released(waiting=plan.waiting, notices=plan.notices, audits=[]).model_dump())
            else:
                notices = _notices(plan.notices)
                print(f"recover: would release {how_many(plan.waiting, 'recipient')} and {what} {notices}")
            if not await consent.agreed(options, "recover release"):
                return 0
        done = await releasing.release(
            connection, by(options), plan, drop_notices=options.drop_notices, watch=watched(quiet=options.json)
        )
        audits = [each.audit for each in done]
        if options.json:
            records.one(
                Released(waiting=sum(each.done for each in done), notices=plan.notices, audits=audits).model_dump()
            )
        else:
            for planned, each in zip(plan.plans, done, strict=True):
                tell(options, planned.change, each)
        return 0

    return _ask(options, act)


def _ask[T](options: argparse.Namespace, question: Callable[[database.Connection], Awaitable[T]]) -> T:
    """Ask on one connection, which may write although the server's default is that none may."""
    conninfo = beginning.writable(one_connection.configured(options))
    return one_connection.ask(conninfo, _NAME, question, _refused)


def _refused(error: BaseException) -> str:
    return f"recover: {database.reason(error)}"
