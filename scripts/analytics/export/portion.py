"""portion — one portion of a day, read from PostgreSQL and written into the staging folder

Owns: the work of one export worker: read, compute the sums, quarantine bad rows, divide by class, write Parquet.
Guarantees: run twice, by a retry or in a second run, it leaves the same files; a file gets its name only when it is
    complete and on disk. Rows are in the order of their instants.
Raises: PartitionDropped, DatabaseUnavailable; LakeFault when the lake cannot be written.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from scripts.analytics import classes, manifest
from scripts.analytics.export import quarantine
from scripts.analytics.manifest import LakeFault, LakeFile
from scripts.analytics.source import fingerprint, portion
from scripts.analytics.source.columns import HISTORIES

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.analytics.source.fingerprint import Fingerprint
    from scripts.analytics.source.portions import Portion

#: Columns with few distinct values, for Parquet's dictionary encoding; trying it on the others only costs time.
_DICTIONARY: Final = [
    *("worker", "partid", "transportid", "jobid", "senderdomain", "recipientdomain", "remote", "outcome", "scope"),
    *(
        "reply_enhanced",
        "tls",
        "source",
        "result",
        "senderip",
        "serverid",
        "saslusername",
        "senderlocalpart",
        "metadata",
    ),
]


#: Octets written before each fdatasync: mail's commits on the same disk wait behind one piece, not behind a file.
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """The task of one worker: a portion, and its number within the day."""

    conninfo: str
    table: str
    portion: Portion
    number: int
    version: int
    staging: Path
    classes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a piece: the files, still below the staging folder, the sums, and the quarantined rows."""

    files: tuple[LakeFile, ...]
    fingerprint: Fingerprint
    quarantined: dict[str, int]
    aside: tuple[str, ...]


def write_portion(piece: Piece) -> Written:
    """Export one piece."""
    history = HISTORIES[piece.table]
    table = portion.read(piece.conninfo, history, piece.portion, list(history.kinds))
    sums = fingerprint.of_table(table, history, piece.portion.since)
    kept, bad = quarantine.divide(table, history)
    kept = kept.sort_by(history.instant)
    of_class = classes.classify(kept["recipientdomain"], piece.classes)
    names = sorted(pc.unique(of_class).to_pylist())
    files = []
    for name in names:
        path = Path(piece.table, f"day={piece.portion.day}", f"class={name}", _file(piece.version, piece.number))
        files.append(write(piece.staging, path, kept.filter(pc.equal(of_class, name)) if len(names) > 1 else kept))
    aside: tuple[str, ...] = ()
    if bad.num_rows:
        path = Path(manifest.QUARANTINE, piece.table, f"day={piece.portion.day}", _file(piece.version, piece.number))
        aside = (write(piece.staging, path, bad).path,)
    return Written(tuple(files), sums, quarantine.counts(bad), aside)


def write(folder: Path, path: Path, table: pa.Table) -> LakeFile:
    """Write one Parquet file below `folder`, complete and on disk; its entry for the manifest."""
    file = folder / path
    draft = file.with_suffix(f".{os.getpid()}.draft")
    known = [name for name in _DICTIONARY if name in table.column_names]
    put: Callable[..., None] = partial(parquet.write_table, compression="zstd", use_dictionary=known)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        packed = pa.BufferOutputStream()
        put(table, packed)
        content = memoryview(packed.getvalue())
        digest = hashlib.sha256()
        with draft.open("wb") as out:
            for start in range(0, len(content), _PIECE):
                piece = content[start : start + _PIECE]
                out.write(piece)
                out.flush()
                os.fdatasync(out.fileno())
                digest.update(piece)
            os.fsync(out.fileno())
        found = LakeFile(str(path), table.num_rows, len(content), digest.hexdigest())
        draft.replace(file)
    except OSError as error:
        raise LakeFault(f"{file}: cannot be written: {error.strerror or error}") from None
    return found


def _file(version: int, number: int) -> str:
    return f"v{version:04}-{number:05}.parquet"
