"""apart — the cells that need their own servers: failover, upgrade, full disk

Owns: APART, these cells by name; their rows, their last line, and their table in docs/explanation/crash-table.md.
Guarantees: exit status 0 if only the lagging standby lost mail, every lost message was named, and mail flowed again
    within the table's limit; 1 otherwise; 69 if no promise was broken, but a cell could not run because its
    programs are missing, which are named. `--write` requires that every cell has run.
See: tests/chaos/failover.py, upgrade.py and disk.py; tests/chaos/cells.py for the others.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from shared.postgres.migrate import migrate
from tests.chaos import disk, failover, upgrade
from tests.chaos.cells import SOON
from tests.chaos.report import MISSING, PAGE
from tests.fixtures.servers.killable import killable
from tests.fixtures.servers.postgres import LEAVES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tests.chaos.accounts import Figures

BEGIN: Final = "<!-- written by `make chaos-apart ARGS=--write`: begin -->"
END: Final = "<!-- apart: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a cell. named: lost messages that smtpd named; unnamed: lost messages that it did not."""

    figures: Figures
    bound: int = 0
    recovery: float | None = None
    named: int = 0
    unnamed: int = 0
    note: str = ""

    def broken(self) -> bool:
        """Whether a promise was not kept."""
        lost, late = self.figures.lost and not self.named, (self.recovery or 0.0) > SOON
        return bool(lost or late or self.unnamed or self.figures.altered or self.figures.duplicated > self.bound)


@dataclass(frozen=True, slots=True)
class Apart:
    """A fault, its instant, and the function that runs it in an empty folder."""

    fault: str
    instant: str
    run: Callable[[Path], Awaitable[Row]]


async def _failover(outcome: Awaitable[failover.Outcome]) -> Row:
    found = await outcome
    unnamed = len(found.missing ^ found.reported)
    note = f"promoted after {found.elected:.0f} s" if found.elected else ""
    return Row(found.figures, found.bound, found.seconds, len(found.reported), unnamed, note)


async def _disk(outcome: Awaitable[disk.Outcome]) -> Row:
    found = await outcome
    ended = ", then it ended and was started again" if found.gave_up else ""
    note = f"clients heard {', '.join(sorted(found.replies))}; {found.panics} PANIC{ended}"
    return Row(found.figures, found.bound, found.seconds, note=note)


async def _upgrade(folder: Path) -> Row:
    with killable() as server:
        await asyncio.to_thread(migrate, server.uri, LEAVES)
        return Row(await upgrade.to_newer(server.uri, folder))


APART: Final = {
    "failover-synchronous": Apart(
        "primary lost, synchronous standby promoted", "at random", lambda f: _failover(failover.to_synchronous(f))
    ),
    "failover-patroni": Apart(
        "Patroni's leader and its PostgreSQL, kill -9", "at random", lambda f: _failover(failover.by_patroni(f))
    ),
    "failover-lagging": Apart(
        "primary lost, lagging asynchronous standby promoted", "at random", lambda f: _failover(failover.to_lagging(f))
    ),
    "failover-survivors": Apart(
        "primary lost, lagging standby promoted, a worker outlives it with results in flight",
        "its results come when others have the ids",
        lambda f: _failover(failover.past_survivors(f)),
    ),
    "upgrade-to-newer": Apart(
        "rolling upgrade to the next version",
        "this code while the schema changes, restarted on it, then both",
        _upgrade,
    ),
    "disk-data": Apart(
        "disk full under PostgreSQL, not watched", "tables cannot grow", lambda f: _disk(disk.full_data(f))
    ),
    "disk-wal": Apart(
        "disk full under PostgreSQL, not watched",
        "the log cannot grow: PANIC",
        lambda f: _disk(disk.full_log(f)),
    ),
    "disk-data-minfree": Apart(
        "PostgreSQL's disk fills up", "tables reach spool.minfree", lambda f: _disk(disk.stopped(f, "data"))
    ),
    "disk-wal-minfree": Apart(
        "PostgreSQL's disk fills up", "the log reaches spool.minfree", lambda f: _disk(disk.stopped(f, "wal"))
    ),
}


async def run_all(names: Sequence[str], folder: Path) -> tuple[dict[str, Row], list[str], list[str]]:
    """Run these cells, one after the other, and print a line for each; also those that did not end or could not run."""
    rows: dict[str, Row] = {}
    stuck: list[str] = []
    unrun: list[str] = []
    for name in names:
        place = folder / name
        place.mkdir()
        try:
            rows[name] = await APART[name].run(place)
        except pytest.skip.Exception as left_out:
            unrun.append(name)
            print(f"{name:22} could not run: {left_out}", file=sys.stderr)
            continue
        except Exception as error:  # noqa: BLE001 - the other cells run after any error
            stuck.append(name)
            print(f"{name:22} BROKEN: {error!r}", file=sys.stderr)
            continue
        row = rows[name]
        took = "-" if row.recovery is None else f"{row.recovery:.1f}s"
        print(
            f"{name:22} {row.figures} bound={row.bound} recovery={took} named={row.named} {row.note}"
            f"{' BROKEN' if row.broken() else ''}",
            file=sys.stderr,
        )
    return rows, stuck, unrun


def page(rows: dict[str, Row]) -> str:
    """The table in Markdown."""
    lines = ["| fault | instant | lost | duplicated | bound | recovery | command |", "|---|---|---|---|---|---|---|"]
    for name, row in rows.items():
        cell, f = APART[name], row.figures
        lost = f"{f.lost}, all named" if row.named else str(f.lost)
        recovery = "-" if row.recovery is None else f"{row.recovery:.1f} s ({SOON:g} s)"
        instant = f"{cell.instant}; {row.note}" if row.note else cell.instant
        command = f'`make chaos-apart ARGS="--only {name}"`'
        lines.append(f"| {cell.fault} | {instant} | {lost} | {f.duplicated} | {row.bound} | {recovery} | {command} |")
    return "\n".join(lines)


def write(rows: dict[str, Row], path: Path = PAGE) -> None:
    """Write the table into the page."""
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{page(rows)}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def as_json(rows: dict[str, Row]) -> dict[str, Any]:
    """For programs."""
    return {
        name: {
            "accepted": row.figures.accepted,
            "lost": row.figures.lost,
            "named": row.named,
            "duplicates": row.figures.duplicated,
            "bound": row.bound,
            "refused": row.figures.refused,
            "recovery_seconds": row.recovery,
            "broken": row.broken(),
        }
        for name, row in rows.items()
    }


def main(argv: list[str] | None = None) -> int:
    """Parse the options, run, and print."""
    parser = argparse.ArgumentParser(prog="chaos-apart", description="Failover, upgrade and full disk, under load.")
    parser.add_argument("--only", action="append", metavar="CELL", choices=sorted(APART), help="this cell; repeatable")
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    parser.add_argument("--write", action="store_true", help=f"write the table in {PAGE}; needs every cell")
    arguments = parser.parse_args(argv)
    names = arguments.only or list(APART)
    folder = Path(tempfile.mkdtemp(prefix="pillarbox-apart-"))
    rows, stuck, unrun = asyncio.run(run_all(names, folder))
    accepted, lost = sum(r.figures.accepted for r in rows.values()), sum(r.figures.lost for r in rows.values())
    named = sum(r.figures.lost for r in rows.values() if r.named)
    summary = (
        f"faults={len(rows)} accepted={accepted} lost={lost - named} lost_and_named={named} could_not_run={len(unrun)}"
    )
    print(json.dumps(as_json(rows)) if arguments.json else summary)
    if stuck or any(row.broken() for row in rows.values()):
        print(f"chaos-apart: promises were broken; logs: {folder}", file=sys.stderr)
        return 1
    if arguments.write:
        if len(rows) < len(APART):
            parser.error("--write needs every cell to have run")
        write(rows)
    return MISSING if unrun else 0


if __name__ == "__main__":
    sys.exit(main())
