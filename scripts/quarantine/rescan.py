"""rescan — `pillarbox quarantine rescan`: runs the content check again on held mail

Owns: the verb; the table of verdicts.
Guarantees: without `--release` nothing changes. Killed, or after rspamd did not answer, the same command does the rest.
Raises: PillarboxError for errors that a reviewer can correct.
See: operate/quarantine/rescan.py, which does it; docs/how-to/accept/check-content-with-rspamd.md.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

from operate.quarantine import rescan as operation
from operate.quarantine.rescan import CHANGE, PORTION, Checks, answered, check_of
from operate.queue.act import Done, Span, begin
from scripts.options import finish
from scripts.output import consent, records
from scripts.output.reason import by
from scripts.output.table import Column, Table
from scripts.quarantine.reviewing import narrow
from scripts.queue.act import add_acting, progress, told_if_interrupted
from scripts.queue.query import run
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    import argparse

    from rich.progress import Progress

    from operate.quarantine.access import Narrowed
    from operate.shapes.mail import Rescanned

_SYMBOLS: Final = 5  # that are shown
_VERDICTS: Final = (
    Column("id", right=True),
    Column("recipient", least=24, whole=True),
    Column("sender", gives=2, least=20, whole=True),
    Column("verdict"),
    Column("score", gives=1, right=True),
    Column("clean"),
    Column("symbols", gives=3, least=12),
)


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = under.add_parser("rescan", help="ask the content check again; with --release, release what is clean")
    add_acting(verb)
    verb.add_argument("--release", action="store_true", help="release what is clean (asks, or with --yes)")
    verb.set_defaults(verb="rescan")
    finish(verb, rescan, acting=True)


def rescan(options: argparse.Namespace) -> int:
    """Ask again, and release what is clean where that is wanted."""
    file = options.config / "smtpd.yaml"
    settings = load_smtpd(file)
    check = check_of(settings, file)

    async def go(connection: database.Connection) -> int:
        narrowed = await narrow(connection, settings, options)
        asking = narrowed.asking
        [counted] = await asking.fetch(connection, "queue_count", statuses=["HOLD"])
        wanted = min(counted.recipients, options.limit or counted.recipients)
        releasing = options.release and (wanted == 0 or await _agreed(options, wanted))
        audit = await begin(connection, by(options), CHANGE, str(asking.condition), wanted) if releasing else 0
        done = Done(audit, wanted)
        checks = Checks(check)
        try:
            telling = told_if_interrupted(CHANGE, done) if releasing else nullcontext()
            with telling, progress("checked", wanted, quiet=options.json) as bar:
                clean = await _walk(connection, options, narrowed, checks, done, counted.last, bar)
        finally:
            await checks.close()
        if releasing:
            await database.fetch(connection, "audit_finish", id=done.audit)
        _end(options, done, clean, releasing=releasing)
        return 0

    return run(options, go)


async def _agreed(options: argparse.Namespace, wanted: int) -> bool:
    """Whether clean mail may be released: asked before the check, which may take long."""
    if not options.json:
        print(f"rescan: checks {how_many(wanted, 'recipient')}, and releases clean mail")
    return await consent.agreed(options, "quarantine rescan")


async def _walk(
    connection: database.Connection,
    options: argparse.Namespace,
    narrowed: Narrowed,
    checks: Checks,
    done: Done,
    last: int,
    bar: Progress,
) -> int:
    """Portion after portion; how many recipients' messages are clean."""
    after = seen = clean = 0
    table = Table(_VERDICTS)
    while seen < done.wanted:
        span = Span(after, last, min(PORTION, done.wanted - seen))
        highest, rows = await operation.portion(connection, narrowed, checks, done, span)
        if highest is None:
            break
        after, seen = highest, seen + len(rows)
        checked = answered(rows)
        _print(checked, table, as_json=options.json)
        clean += sum(each.clean for each in checked)
        bar.update(bar.task_ids[0], completed=seen)
        if len(checked) < len(rows):
            raise PillarboxError(
                f"quarantine rescan: the content check does not answer; {len(rows) - len(checked)} of {len(rows)} are "
                "not checked and stay held; run the command again"
            )
    return clean


def _print(rows: list[Rescanned], table: Table, *, as_json: bool) -> None:
    if as_json:
        for each in rows:
            records.one(each.model_dump())
        return
    table.print(map(_cells, rows))


def _cells(each: Rescanned) -> tuple[object, ...]:
    """One verdict as a row of the table."""
    heaviest = sorted(each.symbols.items(), key=lambda symbol: -abs(symbol[1]))[:_SYMBOLS]
    symbols = ", ".join(f"{name} {weight:g}" for name, weight in heaviest)
    score = "" if each.score is None else f"{each.score:.1f}"
    return each.id, each.recipient, each.sender, each.action, score, each.clean, symbols


def _end(options: argparse.Namespace, done: Done, clean: int, *, releasing: bool) -> None:
    if releasing:
        totals: dict[str, int] = {"audit": done.audit, "wanted": done.wanted, "clean": clean, "done": done.done}
        words = f"released {done.done} of {how_many(done.wanted, 'recipient')}, {clean} being clean; audit {done.audit}"
    else:
        totals = {"wanted": done.wanted, "clean": clean, "done": 0}
        words = f"clean: {clean} of {how_many(done.wanted, 'recipient')}; nothing was released"
    if options.json:
        records.one(totals)
    else:
        print(words)
