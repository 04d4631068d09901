"""day — exports one day into the lake, exactly once: staging, move, manifest, tidy

Owns: the order of these steps, and the clean-up after a killed run at each.
Guarantees: after a kill in any step the lake holds the day as its old or its new manifest says, never a mixture. The
    next run starts the day again and removes the killed run's files. A day with fewer rows than the lake has is
    refused.
Raises: DayRefused, PartitionDropped, LakeFault, DatabaseUnavailable.
See: docs/explanation/analytics.md, "Killed in the middle".
"""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from scripts.analytics import manifest
from scripts.analytics.export.portion import Piece, write_portion
from scripts.analytics.manifest import LakeFault, Manifest
from scripts.analytics.source import copying, fingerprint, portions
from scripts.analytics.source.fingerprint import Fingerprint
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import date
    from pathlib import Path

    from scripts.analytics.export.portion import Written
    from scripts.analytics.runner import Runner
    from scripts.analytics.source.columns import History

_ROUNDS: Final = 3  # how often a day that grows during the read is read


class DayRefused(PillarboxError):
    """PostgreSQL and the lake differ about a day in a way that an export must not resolve."""


def sums(conninfo: str, history: History, day: date) -> Fingerprint:
    """The sums over PostgreSQL's rows of a day."""
    since = datetime(day.year, day.month, day.day, tzinfo=UTC)
    with copying.session(conninfo) as session:
        there = {row.name for row in copying.rows(session, "analytics_columns", table=history.name)}
        counted = [name for name in fingerprint.counted(history) if name in there]
        found = copying.sums(session, history, counted, since)
    return Fingerprint(*(int(value) for value in found))


def is_current(known: Manifest, now: Fingerprint) -> bool:
    """Whether the lake's day is current; DayRefused if the lake has more rows than PostgreSQL."""
    if known.fingerprint == now:
        return True
    if now.rows <= known.fingerprint.rows:
        raise DayRefused(
            f"{known.table} {known.day}: PostgreSQL has {how_many(now.rows, 'row')}, the lake {known.fingerprint.rows}"
            f"{' with other content' if now.rows == known.fingerprint.rows else ''}; the lake was not changed"
        )
    return False


def export_day(
    conninfo: str,
    lake: Path,
    history: History,
    leaf: portions.Leaf,
    table: dict[str, str],
    runner: Runner,
    tell: Callable[[int], None],
    at: Callable[[str], None],
) -> Manifest | None:
    """Export one day; None if the lake's is current. `at` is called with each step's name before the step."""
    known = manifest.load(lake, history.name, leaf.day)
    staging = lake / manifest.STAGING / f"{history.name}-{leaf.day}"
    if known is not None and is_current(known, sums(conninfo, history, leaf.day)):
        tidy(lake, known)  # a run may have been killed right after its commit
        clear(staging)
        return None
    version = 1 if known is None else known.version + 1
    for _ in range(_ROUNDS):
        clear(staging)
        at("read")
        cut = portions.cut(leaf)
        pieces = [
            Piece(conninfo, history.name, portion, number, version, staging, table)
            for number, portion in enumerate(cut)
        ]
        written = runner.run(write_portion, pieces, tell)
        at("staged")
        now = sums(conninfo, history, leaf.day)
        made = summed(history.name, leaf.day, version, written)
        if made.fingerprint == now:
            settle(lake, staging, made, at)
            return made
    raise DayRefused(
        f"{history.name} {leaf.day}: the day changed during each of {_ROUNDS} reads: {asdict(now)}; export it later"
    )


def summed(table: str, day: date, version: int, written: Iterable[Written]) -> Manifest:
    """The manifest of the workers' files."""
    made = Manifest(table, day, version, Fingerprint(), ())
    for each in written:
        reasons = {**made.quarantined}
        for reason, rows in each.quarantined.items():
            reasons[reason] = reasons.get(reason, 0) + rows
        made = replace(
            made,
            fingerprint=made.fingerprint + each.fingerprint,
            files=(*made.files, *each.files),
            quarantined=reasons,
            aside=(*made.aside, *each.aside),
        )
    return made


def settle(lake: Path, staging: Path, made: Manifest, at: Callable[[str], None]) -> None:
    """Move the staged files to their place, commit the manifest, and remove the files it replaces."""
    for file in sorted(staging.rglob("*.parquet")):
        at("move")
        target = lake / file.relative_to(staging)
        _made_folder(target.parent)
        file.replace(target)
    for folder in {(lake / entry.path).parent for entry in made.files}:
        manifest.sync(folder)
    at("commit")
    manifest.commit(lake, made)
    at("tidy")
    tidy(lake, made, at)
    clear(staging)
    at("done")


def tidy(lake: Path, made: Manifest, at: Callable[[str], None] = lambda _: None) -> int:
    """Remove files of a day that its manifest does not name: replaced files and those of killed runs; their number."""
    named = {lake / path for path in (*(entry.path for entry in made.files), *made.aside)}
    folders = (lake / made.table, lake / manifest.QUARANTINE / made.table)
    found = [file for folder in folders for file in sorted((folder / f"day={made.day}").rglob("*.parquet"))]
    unnamed = [file for file in found if file not in named]
    for file in unnamed:
        at("remove")
        file.unlink(missing_ok=True)
    return len(unnamed)


def clear(folder: Path) -> None:
    """Remove a staging folder, which a killed run may have left."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        raise LakeFault(f"{folder}: cannot be removed: {error.strerror}") from None


def _made_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        for above in (folder.parent, folder.parent.parent):
            manifest.sync(above)


def writable(lake: Path) -> None:
    """Raise LakeFault unless files can be created, renamed and removed below `lake`."""
    try:
        (lake / manifest.STAGING).mkdir(parents=True, exist_ok=True)
        probe = lake / manifest.STAGING / f"probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.rename(probe.with_suffix(".renamed")).unlink()
    except OSError as error:
        raise LakeFault(f"--lake: {lake} cannot be written: {error.strerror}; allowed: a writable folder") from None
