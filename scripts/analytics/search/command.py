"""command — `pillarbox analytics search`: finds finished mail in the lake, as `queue list` finds queued mail

Guarantees: reads the lake only; PostgreSQL and Java are not needed. The newest come first. Finding nothing is an
    answer: the exit status is 0.
Raises: LakeFault; ConditionError for a condition that finished mail cannot answer.
See: docs/how-to/observe/export-history.md; docs/reference/condition.md.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics import priority, terminal
from scripts.analytics.export.command import add_lake
from scripts.output import records
from scripts.output.table import Column, Table

if TYPE_CHECKING:
    import argparse

_COLUMNS: Final = (
    Column("id", gives=5, right=True),
    Column("message", gives=2),
    Column("finished"),
    Column("result"),
    Column("sender", gives=3, least=16),
    Column("recipient", least=24, whole=True),
    Column("subject", gives=4, least=12),
    Column("last_error", gives=1, least=12),
)


def add_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `search`."""
    verb = verbs.add_parser("search", help="find finished mail in the lake by Message-ID, recipient, sender, subject …")
    verb.add_argument(
        "condition",
        nargs="+",
        metavar="CONDITION",
        help="'<Message-ID>', a message id, a recipient's number, or a condition (docs/reference/condition.md)",
    )
    add_lake(verb)
    verb.add_argument("--since", type=terminal.day, metavar="DAY", help="mail that finished on this day or later")
    verb.add_argument("--until", type=terminal.day, metavar="DAY", help="mail that finished on this day or earlier")
    verb.add_argument("--limit", type=terminal.count, default=100, metavar="N", help="at most N (default 100)")
    verb.add_argument("--json", action="store_true", help="one JSON object a line")
    verb.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Print what is found."""
    from scripts.analytics.lake import catalog  # noqa: PLC0415 - it loads Arrow
    from scripts.analytics.search import matching, scan  # noqa: PLC0415

    wanted = matching.condition(options.condition)
    priority.lower()
    progress: list[terminal.Progress] = []

    def tell(done: int, every: int) -> None:
        if not progress:
            progress.append(terminal.Progress("analytics search", every, "files"))
        progress[0].tell(done)

    found = scan.newest(
        catalog.opened(options.lake).needed("archive"),
        matching.expression(wanted, datetime.now(UTC)),
        matching.columns(wanted),
        options.limit + 1,
        since=options.since,
        until=options.until,
        tell=tell,
    )
    rows = [_finished(row) for row in found[: options.limit]]
    if options.json:
        records.lines(rows)
        return 0
    Table(_COLUMNS).print([row[column.name] for column in _COLUMNS] for row in rows)
    if len(found) > options.limit:
        print(f"there is more: --limit {options.limit}")
    if not rows:
        print("the lake has no finished mail that fits")
    return 0


def _finished(row: dict[str, Any]) -> dict[str, Any]:
    """A row as shapes.mail.Finished has it."""
    return {
        "id": row["id"],
        "message": row["messages__id"],
        "received": row["ts"],
        "finished": row["finished"],
        "result": row["result"],
        "sender": "" if row["senderdomain"] is None else f"{row['senderlocalpart']}@{row['senderdomain']}",
        "recipient": f"{row['recipientlocalpart']}@{row['recipientdomain']}",
        "msgid": row["msgid"],
        "subject": row["subject"],
        "size": row["size"],
        "user": row["saslusername"],
        "transport": row["transportid"],
        "jobid": row["jobid"],
        "retry_count": row["retry_count"],
        "last_error": row["last_error"],
    }
