"""rescan — `pillarbox quarantine rescan`: runs the content check again on held mail

Owns: the verb; the facts of a held message for rspamd, and the verdicts that count as clean.
Guarantees: without `--release` nothing changes. With it clean mail is released, a portion in one transaction with its
    audit row; mail that is not clean, or too large to be checked, and all the rest when rspamd does not answer, stays
    held. Killed, the same command does the rest.
Raises: PillarboxError for errors that a reviewer can correct.
See: smtpd/policy/content_check.py; docs/how-to/check-content-with-rspamd.md.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from operate.queue.act import Change, Done, Span, begin, change_batch
from operate.queue.query import asked
from scripts.options import finish
from scripts.output import consent, records
from scripts.output.table import Column, Table
from scripts.quarantine.reviewing import narrow
from scripts.queue.act import add_acting, by, progress, told_if_interrupted
from scripts.queue.query import run
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.postgres import database
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.facts import CheckResult
from smtpd.policy.session import Envelope

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
    from uuid import UUID

    from rich.progress import Progress

    from operate.queue.query import Query
    from shared.config.smtpd.policy_check import ContentCheck

_PORTION: Final = 200
_AT_ONCE: Final = 4  # messages in memory
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
_CHANGE: Final = Change("rescan", "queue_release", ("HOLD",), "released", argument={"release": True})


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = under.add_parser("rescan", help="ask the content check again; with --release, release what is clean")
    add_acting(verb)
    verb.add_argument("--release", action="store_true", help="release what is clean (asks, or with --yes)")
    verb.set_defaults(verb="rescan")
    finish(verb, rescan, acting=True)


@dataclass(frozen=True, slots=True)
class Rescanned:
    """The verdict on one held recipient's message. action: rspamd's, or why there is none."""

    id: int
    sender: str
    recipient: str
    action: str
    score: float | None
    symbols: Mapping[str, float]
    clean: bool


class Checks:
    """The content check of a configuration, for mail that is held."""

    def __init__(self, settings: ContentCheck) -> None:
        self._settings = settings
        self._checker = ContentChecker(settings)
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._means = settings.actions.by_name

    async def close(self) -> None:
        """Close the connections."""
        await self._checker.close()

    async def portion(self, connection: database.Connection, rows: list[database.Row]) -> list[Rescanned]:
        """The verdicts on these recipients' messages, each asked once; raises PillarboxError when rspamd is down."""
        by_message: dict[UUID, list[database.Row]] = {}
        for row in rows:
            by_message.setdefault(row.message, []).append(row)
        results = await asyncio.gather(*(self._one(connection, same) for same in by_message.values()))
        of = dict(zip(by_message, results, strict=True))
        return [self._told(row, of[row.message]) for row in rows]

    async def _one(self, connection: database.Connection, rows: list[database.Row]) -> CheckResult | str:
        first = rows[0]
        if first.size > self._settings.maxsize:
            return "too large"
        async with self._free:
            bodies = await database.fetch(connection, "message_bodies", ids=[first.message])
            if not bodies:
                return "no body"
            envelope = Envelope(
                client=str(first.senderip or ""),
                clientname=None,
                helo=first.senderhelo,
                user=first.saslusername,
                sender=first.sender,
                recipients=tuple(row.recipient for row in rows),
                queueid=str(first.message),
            )
            return await self._checker.check(bytes(bodies[0].content), envelope)

    def _told(self, row: database.Row, said: CheckResult | str) -> Rescanned:
        if isinstance(said, CheckResult):
            clean = self._means.get(said.action, "accept") == "accept"
            return Rescanned(row.id, row.sender, row.recipient, said.action, said.score, said.symbols, clean)
        return Rescanned(row.id, row.sender, row.recipient, said, None, {}, clean=False)


def rescan(options: argparse.Namespace) -> int:
    """Ask again, and release what is clean where that is wanted."""
    file = options.config / "smtpd.yaml"
    settings = load_smtpd(file)
    check = settings.policy.contentcheck
    if check is None:
        raise PillarboxError(f"quarantine rescan: {file}: policy.contentcheck is not set; rescan needs a content check")

    async def go(connection: database.Connection) -> int:
        asking, options.condition = await narrow(connection, settings, options)
        [counted] = await asking.fetch(connection, "queue_count", statuses=["HOLD"])
        wanted = min(counted.recipients, options.limit or counted.recipients)
        releasing = options.release and (wanted == 0 or await _agreed(options, wanted))
        audit = await begin(connection, by(options), _CHANGE, str(asking.condition), wanted) if releasing else 0
        done = Done(audit, wanted)
        checks = Checks(check)
        try:
            telling = told_if_interrupted(_CHANGE, done) if releasing else nullcontext()
            with telling, progress("checked", wanted, quiet=options.json) as bar:
                clean = await _walk(connection, options, asking, checks, done, counted.last, bar)
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
    asking: Query,
    checks: Checks,
    done: Done,
    last: int,
    bar: Progress,
) -> int:
    """Portion after portion; how many recipients' messages are clean."""
    after = seen = clean = 0
    table = Table(_VERDICTS)
    while seen < done.wanted:
        most = min(_PORTION, done.wanted - seen)
        rows = [
            row
            for row in await asking.fetch(connection, "quarantine_mail", after=after, limit=most, most=0)
            if row.id <= last
        ]
        if not rows:
            break
        after, seen = rows[-1].id, seen + len(rows)
        told = await checks.portion(connection, rows)
        answered = [each for each in told if each.action != "down"]
        _print(answered, table, as_json=options.json)
        ids = [each.id for each in answered if each.clean]
        clean += len(ids)
        if done.audit:
            done.done += await _release(connection, options, done.audit, ids)
            done.skipped += len(answered) - len(ids)
            await database.fetch(connection, "audit_add", id=done.audit, ids=[], seen=len(answered) - len(ids))
        bar.update(bar.task_ids[0], completed=seen)
        if len(answered) < len(told):
            raise PillarboxError(
                f"quarantine rescan: the content check does not answer; {len(told) - len(answered)} of {len(told)} are "
                "not checked and stay held; run the command again"
            )
    return clean


async def _release(connection: database.Connection, options: argparse.Namespace, audit: int, ids: list[int]) -> int:
    """Release these, as far as they still fit; how many."""
    if not ids:
        return 0
    words = options.condition
    these = await asked(connection, [*(["(", *words, ")"] if words else []), "id=" + ",".join(map(str, ids))])
    _, changed, _ = await change_batch(connection, these, _CHANGE, audit, Span(0, ids[-1], len(ids)))
    return changed


def _print(told: list[Rescanned], table: Table, *, as_json: bool) -> None:
    if as_json:
        for each in told:
            words = {"id": each.id, "sender": each.sender, "recipient": each.recipient, "action": each.action}
            records.one({**words, "score": each.score, "symbols": dict(each.symbols), "clean": each.clean})
        return
    table.print(map(_cells, told))


def _cells(each: Rescanned) -> tuple[object, ...]:
    """One verdict as a row of the table."""
    heaviest = sorted(each.symbols.items(), key=lambda symbol: -abs(symbol[1]))[:_SYMBOLS]
    symbols = ", ".join(f"{name} {weight:g}" for name, weight in heaviest)
    score = "" if each.score is None else f"{each.score:.1f}"
    return each.id, each.recipient, each.sender, each.action, score, each.clean, symbols


def _end(options: argparse.Namespace, done: Done, clean: int, *, releasing: bool) -> None:
    if releasing:
        told: dict[str, int] = {"audit": done.audit, "wanted": done.wanted, "clean": clean, "done": done.done}
        words = f"released {done.done} of {how_many(done.wanted, 'recipient')}, {clean} being clean; audit {done.audit}"
    else:
        told = {"wanted": done.wanted, "clean": clean, "done": 0}
        words = f"clean: {clean} of {how_many(done.wanted, 'recipient')}; nothing was released"
    if options.json:
        records.one(told)
    else:
        print(words)
