"""run — the preview of retention, and the deletion

Owns: the order of the command: count every rule, show, and with --yes delete rule by rule; then old rows of audit.
Guarantees: without --yes or a yes at a terminal nothing is changed. Held mail is set to DELETE in batches as `pillarbox
    queue delete` does it, each with its audit row: a worker finishes it, so that no mail disappears without a row in
    archive; cut off, the same command does the rest. Works with the rights of pillarbox_reviewer; old audit rows are
    left to logins that may delete them.
Raises: PillarboxError for errors that an operator can correct.
See: sql/README.md, "Acting on the queue".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from operate.queue import act
from operate.queue.act import Change, Done, carry_out
from operate.queue.query import Query, asked_of
from scripts.output import consent, records
from scripts.output.interrupted import telling
from scripts.output.reason import by
from scripts.output.records import plain
from scripts.output.table import Column, Table
from scripts.queue.act import watched
from scripts.queue.query import run
from scripts.retention.rules import Rule, rules
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.quarantine import all_quarantines
from shared.config.units import format_duration
from shared.errors import PillarboxError
from shared.how_many import how_many
from shared.masking import show
from shared.postgres import database, timeline

if TYPE_CHECKING:
    import argparse
    from datetime import timedelta

_DELETE: Final = Change("retention", "queue_end", ("HOLD",), "deleted", values={"status": "DELETE"})
_WHAT: Final = (
    Column("quarantine", least=16, whole=True),
    Column("kept for"),
    Column("too long", right=True),
    Column("MiB", right=True),
    Column("oldest", gives=1),
)
_FORGET: Final = Change("retention", "", (), "forgotten", argument={"table": "audit"})


@dataclass(slots=True)
class RuleRun:
    """The mail of one rule. counted: how many recipients, bytes, the oldest; done: None until something was done."""

    rule: Rule
    asking: Query | None
    counted: database.Row
    done: Done | None = None


def retention(options: argparse.Namespace) -> int:
    """Say what has been kept for long enough, or delete it."""
    config = load_smtpd(options.config / "smtpd.yaml")
    wanted = rules(
        {name: each.retention for name, each in all_quarantines(config.quarantines).items()}, config.retention.default
    )
    if options.age is not None and options.quarantine is None:
        raise PillarboxError(
            "retention: --age requires --quarantine; the retention of other quarantines is set in smtpd.yaml"
        )
    if options.quarantine is not None:
        wanted = [_only(options.quarantine, options.age, wanted)]
    options.reason = None
    keep_audit = config.retention.audit if options.quarantine is None else None
    return run(options, lambda connection: _retention(connection, options, wanted, keep_audit))


def _only(name: str, age: timedelta | None, wanted: list[Rule]) -> Rule:
    """The rule of one quarantine: the age on the command line, its own, or that of others."""
    if not name or not name.isprintable():
        raise PillarboxError(f"retention: {show(name)} is not a valid quarantine id")
    [*own, others] = wanted
    configured = {rule.quarantine: rule.keep for rule in own}.get(name, others.keep)
    keep = configured if age is None else age
    if keep is None:
        raise PillarboxError(
            f"retention: no retention is set for {show(name)}; allowed: --age, or quarantines[].retention or "
            "retention.default in smtpd.yaml"
        )
    return Rule(name, keep)


async def _retention(
    connection: database.Connection, options: argparse.Namespace, wanted: list[Rule], keep_audit: timedelta | None
) -> int:
    [clock] = await database.fetch(connection, "schedule_clock")
    since = await timeline.current(connection)
    found = []
    for rule in wanted:
        asking = asked_of(rule.condition, clock.now)
        counted = (await asking.fetch(connection, "queue_count", statuses=["HOLD"]))[0]
        found.append(RuleRun(rule, asking if rule.keep is not None else None, counted))
    old = None
    if keep_audit is not None:
        before = clock.now - keep_audit
        [old] = await database.fetch(connection, "retention_audit", before=before)
    if not options.yes:
        _show(options, found, old, keep_audit)
        too_old = sum(each.counted.recipients for each in found if each.asking is not None)
        forgettable = old.commands if old is not None and old.allowed else 0
        if not await consent.agreed(options, "retention", wanted=too_old + forgettable):
            return 0
    for each in found:
        if each.asking is not None and each.counted.recipients:
            done = Done(0, each.counted.recipients, timeline=since)
            watch = watched(quiet=options.json)
            each.done = await carry_out(connection, by(options), _DELETE, each.asking, done, each.counted.last, watch)
    forgotten = None
    if keep_audit is not None and old is not None and old.commands and old.allowed:
        forgotten = await _forget(connection, options, keep_audit, clock.now - keep_audit, old.commands)
    _print(options, found, forgotten)
    return 0


async def _forget(
    connection: database.Connection, options: argparse.Namespace, keep: timedelta, before: Any, wanted: int
) -> Done:
    """Delete old rows of audit, first what they changed, in batches."""
    condition = f"audit age>{format_duration(keep)}"
    done = Done(await act.begin(connection, by(options), _FORGET, condition, wanted), wanted)
    with telling(lambda: f"forgot {done.done} of {how_many(wanted, 'row')} of audit; the same command does the rest"):
        for name in ("retention_forget_rows", "retention_forget"):
            while True:
                async with connection.transaction():
                    [gone] = await database.fetch(connection, name, before=before, batch=act.BATCH)
                    commands = gone.n if name == "retention_forget" else 0
                    await database.fetch(connection, "retention_forgot", id=done.audit, commands=commands)
                done.done += commands
                if not gone.n:
                    break
    await database.fetch(connection, "audit_finish", id=done.audit)
    return done


def _show(
    options: argparse.Namespace, found: list[RuleRun], old: database.Row | None, keep_audit: timedelta | None
) -> None:
    """Show the mail that would be deleted."""
    if options.json:
        lines: list[dict[str, Any]] = [_fields(each) for each in found]
        if old is not None and keep_audit is not None:
            lines.append({"table": "audit", "keep": format_duration(keep_audit), "commands": old.commands})
        records.lines(lines)
        return
    Table(_WHAT).print(map(_cells, found))
    if old is not None and keep_audit is not None:
        print(f"rows of audit older than {format_duration(keep_audit)}: {old.commands}")


def _cells(each: RuleRun) -> tuple[object, ...]:
    """One rule as a row of the table."""
    if each.asking is None:
        return each.rule.name, "until a reviewer decides", None, None, None
    row = each.counted
    return each.rule.name, _keep(each.rule), row.recipients, f"{row.bytes / 2**20:.1f}", row.oldest


def _print(options: argparse.Namespace, found: list[RuleRun], forgotten: Done | None) -> None:
    """Show the deleted mail."""
    if options.json:
        lines = [_fields(each) for each in found]
        if forgotten is not None:
            lines.append({"table": "audit", "audit": forgotten.audit, "done": forgotten.done})
        records.lines(lines)
        return
    for each in found:
        if each.done is not None:
            print(
                f"{each.rule.name}: deleted {each.done.done} of {how_many(each.done.wanted, 'recipient')} "
                f"held for more than {_keep(each.rule)}; audit {each.done.audit}"
            )
    if forgotten is not None:
        print(f"audit: forgot {how_many(forgotten.done, 'command')}; audit {forgotten.audit}")
    if forgotten is None and not any(each.done for each in found):
        print("no held mail is older than its retention")


def _fields(each: RuleRun) -> dict[str, Any]:
    """One rule for programs."""
    record: dict[str, Any] = {"quarantine": each.rule.quarantine, "keep": _keep(each.rule)}
    if each.asking is not None:
        row = each.counted
        record |= {"recipients": row.recipients, "bytes": row.bytes, "oldest": plain(row.oldest)}
    if each.done is not None:
        record |= {"audit": each.done.audit, "done": each.done.done, "gone": each.done.gone}
    return record


def _keep(rule: Rule) -> str | None:
    return None if rule.keep is None else format_duration(rule.keep)
