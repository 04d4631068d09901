"""catalog — opens a lake: a folder with its own catalog, or a catalog of PyIceberg's configuration

Owns: the choice of the catalog, the tables of a lake, their schemas and partitions, the lock of a lake in a folder.
Guarantees: a lake in a folder needs no server and no rights in PostgreSQL, so an export may read a replica as a role
    that may only read; its catalog is `catalog.db` (SQLite) in that folder, whose commit is on disk. `catalog:NAME` is
    any other catalog and warehouse: REST, or SQL in PostgreSQL, with files in an object store. A table gets the columns
    it lacks, and is refused if a newer version of Pillarbox has written it.
Raises: LakeFault.
See: https://py.iceberg.apache.org/configuration/; docs/how-to/observe/export-history.md.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import sqlite3
import stat
import warnings
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from weakref import finalize

from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.transforms import DayTransform

from scripts.analytics.lake import storage
from scripts.analytics.lake.faults import LakeFault, reading
from scripts.analytics.source.columns import SCHEMA_VERSION
from shared.errors import first_line
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

#: The namespace of our tables.
NAMESPACE: Final = "pillarbox"
#: The prefix of a lake that is named by its catalog.
BY_NAME: Final = "catalog:"
#: The newest schema that a table was written with.
VERSION: Final = "pillarbox.schema-version"
_FILE: Final = "catalog.db"
#: What a URI, a pattern of Spark's or a line of an error would read as something else in the name of a folder.
_SPECIAL: Final = re.compile(r"[#?%*\[\]{}\\\x00-\x1f\x7f]")
_LOCK: Final = "lock"
_PATIENCE: Final = 60  # seconds for the commit of another program
#: Metadata that no commit needs is deleted by the library.
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.parquet.compression-codec": "zstd",
    "commit.retry.num-retries": "0",  # a day that changed meanwhile is exported again, not merged
}
# Threads of PyIceberg 0.12 share an evaluator that keeps one manifest's bounds, and so may miss files that a commit
# replaces: "Missing required files to delete". One thread reads the manifests; Spark reads the data.
os.environ["PYICEBERG_MAX_WORKERS"] = "1"


class Lake:
    """The tables of one lake."""

    def __init__(self, where: str, catalog: Catalog, folder: Path | None) -> None:
        self.where = where
        self.folder = folder
        self._catalog = catalog

    def table(self, name: str) -> Table | None:
        """A table as it is now; None if the lake has none of this name."""
        with reading(f"{self.where}: the table {name}"):
            try:
                found = self._catalog.load_table((NAMESPACE, name))
            except NoSuchTableError:
                return None
            newer = int(found.properties.get(VERSION, "0"))
        if newer > SCHEMA_VERSION:
            allowed = f"{newer} is not supported; allowed: up to {SCHEMA_VERSION}; upgrade Pillarbox"
            raise LakeFault(f"{self.where}: {name}: schema version {allowed}")
        return found

    def needed(self, name: str) -> Table:
        """A table that must be there."""
        found = self.table(name)
        if found is None:
            raise LakeFault(
                f"{self.where}: not a Pillarbox lake; `pillarbox analytics export --lake {self.where}` creates one"
            )
        return found

    def tables(self) -> list[Table]:
        """Every table of the lake."""
        names = sorted(name for _, name in self._catalog.list_tables(NAMESPACE))
        return [self.needed(name) for name in names]

    def made(self, name: str, schema: pa.Schema, instant: str) -> Table:
        """A table with at least these columns, partitioned by the day of `instant`."""
        found = self.table(name)
        if found is None:
            self._catalog.create_namespace_if_not_exists(NAMESPACE)
            location = None if self.folder is None else f"file://{self.folder / name}"
            with (
                self._catalog.create_table_transaction(
                    (NAMESPACE, name), schema, location, properties=_PROPERTIES | {VERSION: str(SCHEMA_VERSION)}
                ) as new,
                new.update_spec() as spec,
            ):
                spec.add_field(instant, DayTransform(), "day")
            return self.needed(name)
        lacking = [name for name in schema.names if name not in {field.name for field in found.schema().fields}]
        if lacking or found.properties.get(VERSION) != str(SCHEMA_VERSION):
            with found.transaction() as change:
                with change.update_schema() as update:
                    update.union_by_name(schema)
                change.set_properties({VERSION: str(SCHEMA_VERSION)})
        return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock of a lake in a folder for the block; elsewhere the catalog refuses the second commit."""
        if self.folder is None:
            yield
            return
        with ExitStack() as held:
            try:
                door = held.enter_context((self.folder / _LOCK).open("w"))
                fcntl.flock(door, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LakeFault(
                    f"{self.where}: locked by another export or cleanup; try again when it has ended"
                ) from None
            except OSError as error:
                raise LakeFault(f"{self.folder / _LOCK}: cannot be locked: {error.strerror}") from None
            yield


def opened(where: str, *, create: bool = False) -> Lake:
    """The lake in a folder, or of `catalog:NAME`; only with `create` a folder may be without one."""
    warnings.filterwarnings("ignore", message="Delete operation did not match any records")
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns on standard error of what is raised too
    if where.startswith(BY_NAME):
        name = where.removeprefix(BY_NAME)
        try:
            return Lake(where, load_catalog(name), None)
        except Exception as error:  # noqa: BLE001 - each kind of catalog raises its own
            raise LakeFault(f"--lake: {where} cannot be opened: {first_line(error)}") from None
    folder = _folder(where)
    if create:
        _writable(folder)
    elif not _has_catalog(folder):
        raise LakeFault(f"{where}: not a Pillarbox lake; `pillarbox analytics export --lake {where}` creates one")
    uri = f"sqlite:///file:{quote(str(folder / _FILE))}?uri=true&timeout={_PATIENCE}"
    with reading(str(folder / _FILE)):
        _check(folder / _FILE)
        catalog = SqlCatalog(NAMESPACE, uri=uri, warehouse=f"file://{folder}", **{"py-io-impl": storage.NAME})
    finalize(catalog, catalog.engine.dispose)  # tables may outlive the lake they are from
    return Lake(where, catalog, folder)


def _folder(where: str) -> Path:
    """The folder of this name, which all who are given it read as the same."""
    folder = Path(where).absolute()
    if not where or _SPECIAL.search(str(folder)):
        raise LakeFault(
            f"--lake: {show(where)} cannot be a lake; allowed: a folder without # ? % * [ ] {{ }} \\ in its path"
        )
    return folder


def _check(file: Path) -> None:
    """Raise an error of SQLite for a catalog that is damaged. A SqlCatalog that cannot open it leaves it open."""
    with closing(sqlite3.connect(file, timeout=_PATIENCE)) as database:
        [found] = database.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise sqlite3.DatabaseError(found)


def _has_catalog(folder: Path) -> bool:
    try:
        return stat.S_ISREG((folder / _FILE).stat().st_mode)  # is_file() hides errors since Python 3.14
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise LakeFault(f"--lake: {show(str(folder))} cannot be read: {error.strerror}") from None


def _writable(folder: Path) -> None:
    """Raise LakeFault unless files can be created, renamed and removed in `folder`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"probe-{os.getpid()}"
        probe.write_bytes(b"")
        probe.rename(probe.with_suffix(".renamed")).unlink()
        sqlite3.connect(folder / _FILE).close()
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise LakeFault(
            f"--lake: {show(str(folder))} cannot be written: {reason}; allowed: a writable folder"
        ) from None
