"""erase — `pillarbox erase ADDRESS`: deletes what names a person from the queue, from history and from the lake

Owns: the options, the preview, the order of the steps in PostgreSQL and in the lake.
Guarantees: nothing is changed without --yes or a yes at a terminal. PostgreSQL comes before the lake, so that no export
    can bring a day back. Each step may be repeated: after a crash or Ctrl-C the same command does the rest. Neither the
    output in JSON nor the audit row has the address.
Raises: Refused and NotNow; LakeFault; PillarboxError.
See: docs/how-to/review/erase-a-person.md; sql/README.md, "Erasing a person".
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from operate import erase
from scripts import one_connection
from scripts.one_connection import system_user
from scripts.options import finish
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.reason import add_reason
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from operate.erase import Found, Person
    from scripts.analytics.lake.catalog import Lake


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `erase`."""
    verb = subparsers.add_parser("erase", help="delete what names a person from queue, history and lake")
    verb.add_argument("address", metavar="ADDRESS", help="the person's address")
    lake = verb.add_mutually_exclusive_group(required=True)
    lake.add_argument("--lake", metavar="LAKE", help="the lake of `analytics export`: a folder, or catalog:NAME")
    lake.add_argument("--no-lake", action="store_true", help="history was never exported")
    verb.add_argument("--queued", action="store_true", help="also delete queued mail to and from the address, unsent")
    verb.add_argument("--suppress", action="store_true", help="and let the address get no mail, known by a hash only")
    add_reason(verb)
    consent.add_consent(verb)
    finish(verb, run, acting=True)


def run(options: argparse.Namespace) -> int:
    """Show what would go; with --yes, erase it."""
    person = erase.Person.of(options.address)
    lake = None if options.no_lake else _opened(options.lake)
    with lake.alone() if lake else nullcontext():
        return one_connection.ask(
            one_connection.configured(options),
            "pillarbox erase",
            lambda connection: erased(connection, options, person, lake),
            database.reason,
        )


async def erased(
    connection: database.Connection,
    options: argparse.Namespace,
    person: Person,
    lake: Lake | None,
    at: Callable[[str], None] = lambda _: None,
) -> int:
    """Look, ask, erase; the exit status. `at` is called with each step's name before the step."""
    found = await erase.look(connection, person)
    in_lake = _in_lake(lake, person)
    if not options.yes:
        _preview(options, found, len(in_lake))
    found.check(queued=options.queued)
    if not options.yes and not await consent.agreed(options, "erase"):
        return 0
    with _telling():
        argument = {"lake": lake is not None, "queued": options.queued, "suppress": options.suppress}
        wanted = found.queued + found.sent_to + found.sent_from
        at("begin")
        number = await erase.begin(connection, person, system_user(), options.reason, argument, wanted)
        at("queue")
        queued = await erase.find(connection, number, person)
        at("find")
        await erase.add(connection, number, in_lake)
        at("known")
        recipients = await erase.known(connection, number)
        deleted, changed = await erase.delete(connection, number, person, at)
        at("rest")
        rest = await erase.rest(connection, number, person, suppress=options.suppress)
        done: dict[str, Any] = {
            "audit": number,
            "queued": queued,
            "history": deleted,
            "changed": changed,
            **asdict(rest),
        }
        done["lake"] = None
        if lake is not None:
            from scripts.analytics.erase import lake as of_lake  # noqa: PLC0415 - it loads Arrow

            done["lake"] = asdict(of_lake.erase(lake, person, frozenset(recipients), at))
        at("finish")
        await erase.finish(connection, number)
    _show(done, as_json=options.json)
    return 0


def _opened(where: str) -> Lake:
    from scripts.analytics.command import needed  # noqa: PLC0415 - only with a lake

    needed()
    from scripts.analytics.lake import catalog  # noqa: PLC0415 - it loads Arrow

    return catalog.opened(where)


def _in_lake(lake: Lake | None, person: Person) -> list[tuple[int, str]]:
    if lake is None:
        return []
    from scripts.analytics.erase import lake as of_lake  # noqa: PLC0415 - it loads Arrow

    return of_lake.find(lake, person)


def _telling() -> AbstractContextManager[None]:
    return telling(lambda: "a part is erased; the same command does the rest")


def _preview(options: argparse.Namespace, found: Found, in_lake: int) -> None:
    if options.json:
        records.one({**asdict(found), "lake": None if options.no_lake else in_lake})
        return
    sending = f", {found.sending} of them in a worker's hand" if found.sending else ""
    print(f"queue: {how_many(found.queued_to, 'recipient')} to the address, {found.queued_from} from it{sending}")
    print(
        f"archive: {how_many(found.sent_to, 'recipient')} to the address, {found.sent_from} from it, with their tries"
    )
    if not options.no_lake:
        print(f"lake: {how_many(in_lake, 'finished recipient')}, with their tries")
    print(f"notices: {found.notices}; findings of reports: {found.reports}; commands that name it: {found.commands}")
    print(f"suppressed: {'yes, and stays so by a hash' if found.suppressed else 'no'}")
    if found.unfinished is not None:
        print(f"audit {found.unfinished} was cut off: this goes on with it")


def _show(done: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        records.one(done)
        return
    kept = f", kept for other mail: {done['kept']}" if done["kept"] else ""
    rows = how_many(done["history"], "row")
    print(
        f"queue: {how_many(done['queued'], 'recipient')} deleted; history: {rows} deleted, changed: {done['changed']}"
    )
    print(f"deleted bodies: {done['bodies']}{kept}; notices: {done['notices']}; changed commands: {done['commands']}")
    lake = done["lake"]
    if lake is not None:
        rows = f"{how_many(lake['deleted'], 'row')} deleted, changed: {lake['changed']}"
        left = f"; {how_many(lake['left'], 'younger file')} left to `analytics cleanup`" if lake["left"] else ""
        print(f"lake: {rows}, in {how_many(lake['days'], 'day')}; {how_many(lake['files'], 'file')} removed{left}")
    print(f"erased; audit {done['audit']}")
