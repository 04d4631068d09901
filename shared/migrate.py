"""migrate — brings a database's schema to this code's version

Owns: applying sql/migrations/NNNN_{pre|post}_what.sql in order, once each, and making the configured leaves.
Called by: `pillarbox migrate`, `pillarbox up`, tests; daemons only `check`.
Guarantees: idempotent; one at a time (advisory lock); each migration is one transaction, so that a kill leaves it done
    or not done. A schema that is newer than this code is refused before anything is touched.
Raises: SchemaMismatch, DatabaseUnavailable, ConfigError for leaves that contradict those that exist.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, LiteralString

import psycopg

from shared import database
from shared.errors import ConfigError, SchemaMismatch
from shared.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NAME = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_(?P<what>[a-z0-9_]+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, whether it runs before or after new code is deployed, its name and its SQL."""

    number: int
    phase: str
    name: str
    sql: LiteralString


@dataclass(frozen=True, slots=True)
class Report:
    """What a run changed."""

    applied: tuple[str, ...]
    leaves: tuple[str, ...]


def known() -> list[Migration]:
    """The migrations this code brings, in order."""
    found = []
    for path in (files("sql") / "migrations").iterdir():
        if match := NAME.fullmatch(path.name):
            sql = path.read_text(encoding="utf-8")
            found.append(Migration(int(match["number"]), match["phase"], path.name.removesuffix(".sql"), sql))
    return sorted(found, key=lambda migration: migration.number)


def migrate(conninfo: str, leaves: Mapping[str, Sequence[str]], partitions: int = 6) -> Report:
    """Apply what is missing, make the leaves `queue_def_<suffix>` for their partition ids, and the coming days."""
    with _connect(conninfo) as connection:
        connection.execute(query("migrate_lock"))
        applied = _applied(connection)
        _refuse_newer(applied)
        done = []
        for migration in known():
            if migration.number not in applied:
                with connection.transaction():
                    connection.execute(migration.sql)
                    connection.execute(query("migrate_record"), {"number": migration.number, "name": migration.name})
                done.append(migration.name)
        made = [f"queue_def_{suffix}" for suffix, partids in leaves.items() if _make_leaf(connection, suffix, partids)]
        connection.execute(query("history_create"), {"now": None, "ahead": 7})
        connection.execute(query("settings_write"), {"partitions": partitions})
        return Report(tuple(done), tuple(made))


def check(conninfo: str) -> None:
    """Refuse to start on a schema that is not exactly this code's."""
    with _connect(conninfo) as connection:
        compare(_applied(connection))


def compare(applied: Mapping[int, str]) -> None:
    """Refuse a schema with other migrations than this code's; `applied` is number and name of each it has."""
    _refuse_newer(applied)
    missing = [migration.name for migration in known() if migration.number not in applied]
    if missing:
        raise SchemaMismatch(
            f"the schema is older than this code: {', '.join(missing)} missing; run `pillarbox migrate`"
        )


def _refuse_newer(applied: Mapping[int, str]) -> None:
    ours = {migration.number for migration in known()}
    if newer := sorted(name for number, name in applied.items() if number not in ours):
        raise SchemaMismatch(f"the schema is newer than this code: it has {', '.join(newer)}; upgrade Pillarbox")


def _applied(connection: psycopg.Connection) -> dict[int, str]:
    """Number and name of the migrations the database has; empty when it has never been migrated."""
    if not connection.execute(query("migrate_present")).fetchone():
        return {}
    return dict(connection.execute(query("migrate_applied")).fetchall())


def _make_leaf(connection: psycopg.Connection, suffix: str, partids: Sequence[str]) -> bool:
    try:
        row = connection.execute(query("leaf_create"), {"suffix": suffix, "partids": list(partids)}).fetchone()
    except (
        psycopg.errors.DuplicateTable,
        psycopg.errors.InvalidObjectDefinition,
        psycopg.errors.CheckViolation,
    ) as error:
        raise ConfigError(
            f"environment.database.partitions.leaves.{suffix}: {error.diag.message_primary}; "
            "a leaf that exists or has mail waiting cannot be given other partition ids here"
        ) from None
    return bool(row and row[0])


@contextmanager
def _connect(conninfo: str) -> Iterator[psycopg.Connection]:
    try:
        connection = psycopg.connect(database.complete(conninfo, "pillarbox migrate"), autocommit=True)
    except psycopg.OperationalError as error:
        raise database.unavailable(error) from None
    with connection:
        yield connection
