"""manifest — the list of a day's files in the lake, and their content

Owns: `_manifests/TABLE/DAY.json`: version, rows, fingerprint, files with their SHA-256, quarantined rows.
Guarantees: a day is in the lake if and only if its manifest is: the rename of the manifest is the commit, on disk
    before the next step. A file that no manifest names is not part of the lake.
Raises: LakeFault, naming the file, the fault and the remedy.
See: docs/explanation/analytics.md.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics.source.columns import HISTORIES, SCHEMA_VERSION
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
from scripts.analytics.source.fingerprint import Fingerprint

_BLOCK: Final = 1 << 20
MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
QUARANTINE: Final = "_quarantine"


class LakeFault(PillarboxError):
    """The lake cannot be read or written, or differs from its manifests."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file: its path below the lake, rows, octets and SHA-256."""

    path: str
    rows: int
    octets: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One day of one table, as it is in the lake."""

    table: str
    day: date
    version: int
    fingerprint: Fingerprint
    files: tuple[LakeFile, ...]
    quarantined: dict[str, int] = field(default_factory=dict)
    aside: tuple[str, ...] = ()  # files of the quarantine
    schema_version: int = SCHEMA_VERSION
    dropped: str | None = None  # the time when PostgreSQL's partition was dropped after verification

    @property
    def rows(self) -> int:
        """Rows in the files; the others are in the quarantine."""
        return self.fingerprint.rows - sum(self.quarantined.values())


def place(lake: Path, table: str, day: date) -> Path:
    """The path of a day's manifest."""
    return lake / MANIFESTS / table / f"{day}.json"


def load(lake: Path, table: str, day: date) -> Manifest | None:
    """The manifest of a day; None if the day is not in the lake."""
    file = place(lake, table, day)
    try:
        return _read(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LakeFault(f"{file}: {error.strerror}") from None


def every(lake: Path, table: str) -> Iterator[Manifest]:
    """The manifests of a table in the order of the days."""
    if table not in HISTORIES:
        raise LakeFault(f'table "{table}" is unknown; allowed: {", ".join(HISTORIES)}')
    for file in sorted((lake / MANIFESTS / table).glob("????-??-??.json")):
        yield _read(file)


def commit(lake: Path, manifest: Manifest) -> None:
    """Make this the manifest of its day, atomically and on disk."""
    file = place(lake, manifest.table, manifest.day)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as out:
        json.dump(asdict(manifest) | {"day": str(manifest.day)}, out, indent=1)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
    sync(file.parent)


def sync(folder: Path) -> None:
    """Flush the names in a folder to disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sha256(file: Path) -> str:
    """The checksum of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while block := source.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def check(lake: Path, entry: LakeFile) -> None:
    """Raise LakeFault unless the file exists unchanged."""
    file = lake / entry.path
    try:
        found = file.stat().st_size
        same = found == entry.octets and sha256(file) == entry.sha256
    except FileNotFoundError:
        raise LakeFault(
            f"{file}: the file is missing, but its manifest names it; restore it, or export the day again"
        ) from None
    except OSError as error:
        raise LakeFault(f"{file}: {error.strerror}") from None
    if not same:
        raise LakeFault(
            f"{file}: the file is damaged ({how_many(found, 'octet')}, expected {entry.octets}); "
            "restore it or export the day again"
        )


def _read(file: Path) -> Manifest:
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        if found["schema_version"] > SCHEMA_VERSION:
            newer = f"{found['schema_version']} is not supported; allowed: up to {SCHEMA_VERSION}; upgrade Pillarbox"
            raise LakeFault(f"{file}: schema_version: {newer}")
        found["day"] = date.fromisoformat(found["day"])
        found["fingerprint"] = Fingerprint(**found["fingerprint"])
        found["files"] = tuple(LakeFile(**entry) for entry in found["files"])
        found["aside"] = tuple(found["aside"])
        return Manifest(**found)
    except (ValueError, KeyError, TypeError) as error:
        text = f"{file}: not a Pillarbox manifest ({error}); remove it, then export the day again"
        raise LakeFault(text) from None
