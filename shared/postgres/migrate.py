"""migrate — brings a database's schema to this code's version

Owns: applying the schema, sql/schema/*.sql as one first migration, then sql/migrations/NNNN_{pre|post}_what.sql in
    order, once each, and making the configured leaves.
Guarantees: idempotent; each migration is one transaction, so that a kill leaves it done or not done. Concurrent runs
    take turns: each step locks the table of migrations, which only the owner may, and checks whether it is still to be
    done. Other sessions never wait long behind a lock that we wait for: if one cannot be taken soon, all are given up
    and the migration is tried again. Mail does wait while a migration that has its locks works. Old code tolerates a
    `pre` migration, so newer ones of that phase are accepted; a newer `post` one, which comes after the last old
    daemon, is refused before anything is touched. So is a database from before the first release.
Raises: SchemaMismatch, DatabaseUnavailable, ConfigError for leaves that contradict those that exist; PillarboxError
    when locks could not be taken, naming the sessions that hold them.
See: sql/README.md, "Migrations beside mail".
"""

from __future__ import annotations

import json
import random
import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from time import sleep
from typing import TYPE_CHECKING, Final, LiteralString

import psycopg

from shared.errors import ConfigError, PillarboxError, SchemaMismatch
from shared.failure_points import reach
from shared.postgres import database
from shared.postgres.queries import filled_query, query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from importlib.resources.abc import Traversable

NAME = re.compile(r"(?P<number>\d{4})_(?P<phase>pre|post)_(?P<what>[a-z0-9_]+)\.sql")
PRE = "pre"
#: The first migration: sql/schema in the order of its file names, in one transaction.
SCHEMA: Final = "0001_pre_schema"
PATIENCE: Final = 300.0  # seconds to go on asking for the locks of one step
LOCK_TIMEOUT: Final = 200  # milliseconds; less than deadlock_timeout, so that in a deadlock we mostly give way
# Milliseconds where an autovacuum is in the way: PostgreSQL ends it for a session that waited for deadlock_timeout.
_PAST_AUTOVACUUM: Final = 1_200
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds
#: Errors of the first migration when another run makes the same objects: no table exists yet to take turns by.
MADE_MEANWHILE: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DuplicateSchema,
    psycopg.errors.DuplicateTable,
    psycopg.errors.DuplicateObject,
)

type Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: its number, whether it runs before or after new code is deployed, its name and its SQL."""

    number: int
    phase: str
    name: str
    sql: LiteralString


@dataclass(frozen=True, slots=True)
class Report:
    """The changes of a run."""

    applied: tuple[str, ...]
    leaves: tuple[str, ...]


def known() -> list[Migration]:
    """The migrations this code brings, in order."""
    return steps_in(files("sql"))


def steps_in(folder: Traversable) -> list[Migration]:
    """The migrations in a folder, in order: its `schema`, then what is in its `migrations`."""
    found = [Migration(1, PRE, SCHEMA, _schema(folder))]
    for path in (folder / "migrations").iterdir():
        if match := NAME.fullmatch(path.name):
            sql = path.read_text(encoding="utf-8")
            found.append(Migration(int(match["number"]), match["phase"], path.name.removesuffix(".sql"), sql))
    return sorted(found, key=lambda migration: migration.number)


def _schema(folder: Traversable) -> LiteralString:
    """The schema, file after file."""
    nouns = sorted((folder / "schema").iterdir(), key=lambda path: path.name)
    return "\n".join(path.read_text(encoding="utf-8") for path in nouns if path.name.endswith(".sql"))


def migrate(
    conninfo: str,
    leaves: Mapping[str, Sequence[str]],
    partitions: int = 6,
    *,
    reviewers: Mapping[str, Sequence[str]] | None = None,
    keepsubject: bool = True,
    only_pre: bool = False,
    patience: float = PATIENCE,
    tell: Tell = lambda _line: None,
) -> Report:
    """Apply what is missing, make the leaves `queue_def_<suffix>` for their partition ids, and the coming days.

    `reviewers`: who may decide in each quarantine that names any, which PostgreSQL enforces from then on.
    `keepsubject`: whether enqueue keeps subjects.
    `only_pre` leaves out what old daemons could not go on with: the first half of a rolling upgrade. `patience`:
    seconds to go on waiting for the locks of one step. `tell` is called, once a step, with the sessions it waits for.
    """
    with connected(conninfo) as connection:
        applied = _applied(connection)
        _refuse_unreleased(applied, _name(connection))
        refuse_newer(applied, known())
        insist = _Insist(connection, patience, tell)
        steps = missing(applied, only_pre=only_pre)
        done = [step.name for step in steps if insist(step.name, partial(_apply, connection, step))]
        made = []
        for suffix, partids in leaves.items():
            leaf = f"queue_def_{suffix}"
            if insist(leaf, partial(_make_leaf, connection, suffix, partids)):
                made.append(leaf)
        insist("the coming days", lambda: connection.execute(query("history_create"), {"ahead": 7}))
        connection.execute(
            query("settings_write"),
            {
                "partitions": partitions,
                "reviewers": json.dumps(dict(reviewers or {})),
                "keepsubject": keepsubject,
            },
        )
        return Report(tuple(done), tuple(made))


def check(conninfo: str) -> None:
    """Refuse to start on a schema that this code cannot work with."""
    with connected(conninfo) as connection:
        compare(_applied(connection), _name(connection))


def compare(applied: Mapping[int, str], where: str) -> list[str]:
    """Refuse a schema this code cannot work with; `applied` is number and name of each migration that `where` has.

    Needed are all `pre` migrations this code brings. Its `post` ones may be missing, and `pre` ones of later versions
    may be there: their names are returned. SchemaMismatch says what to do.
    """
    _refuse_unreleased(applied, where)
    later = refuse_newer(applied, known())
    if absent := [step.name for step in known() if step.phase == PRE and step.number not in applied]:
        raise SchemaMismatch(
            f"the schema is older than this code: {', '.join(absent)} missing; run `pillarbox migrate`"
        )
    return later


def missing(applied: Mapping[int, str], *, only_pre: bool = False) -> list[Migration]:
    """The migrations to apply, in order; SchemaMismatch when a `pre` migration waits for a `post` one before it."""
    steps = [step for step in known() if step.number not in applied]
    if not only_pre:
        return steps
    posts = [step for step in steps if step.phase != PRE]
    pres = [step for step in steps if step.phase == PRE]
    if posts and pres and pres[-1].number > posts[0].number:
        raise SchemaMismatch(
            f"{pres[-1].name} comes after {posts[0].name}, which old daemons do not tolerate: upgrade to the version "
            "that brought it first, or stop all daemons and run `pillarbox migrate`"
        )
    return pres


def _refuse_unreleased(applied: Mapping[int, str], where: str) -> None:
    """SchemaMismatch for a schema that was made before the first release, whose migrations had other contents."""
    ours = known()[0]
    if (theirs := applied.get(ours.number, ours.name)) != ours.name:
        raise SchemaMismatch(
            f"{where} was made by a development version from before 0.1.0 (pillarbox.migrations has {theirs} where "
            f"this code has {ours.name}), and nothing upgrades it: make a new database and run `pillarbox migrate`"
        )


def refuse_newer(applied: Mapping[int, str], steps: Iterable[Migration]) -> list[str]:
    """Names of migrations of later versions that this code goes on with; SchemaMismatch for any other."""
    ours = {step.number for step in steps}
    newer = sorted(name for number, name in applied.items() if number not in ours)
    if refused := [name for name in newer if f"_{PRE}_" not in name[: len("0000_pre_")]]:
        raise SchemaMismatch(f"the schema is newer than this code: it has {', '.join(refused)}; upgrade Pillarbox")
    return newer


def _name(connection: psycopg.Connection) -> str:
    """How messages call this database."""
    return f'database "{connection.info.dbname}"'


def _present(connection: psycopg.Connection) -> bool:
    """Whether this database has been migrated before."""
    return connection.execute(query("migrate_present")).fetchone() is not None


def _applied(connection: psycopg.Connection) -> dict[int, str]:
    """Number and name of the migrations the database has; empty when it has never been migrated."""
    if not _present(connection):
        return {}
    return dict(connection.execute(query("migrate_applied")).fetchall())


@dataclass(frozen=True, slots=True)
class _Insist:
    """Takes a step in one transaction, and tries again while its locks cannot be taken."""

    connection: psycopg.Connection
    patience: float
    tell: Tell

    def __call__[T](self, what: str, step: Callable[[], T]) -> T:
        waited, pause, timeout, reported = 0.0, _FIRST_PAUSE, LOCK_TIMEOUT, False
        while True:
            first = not _present(self.connection)
            try:
                with self.connection.transaction():
                    self.connection.execute(filled_query("lock_timeout", milliseconds=str(timeout)))
                    if not first:
                        self.connection.execute(query("migrate_lock"))
                    return step()
            except MADE_MEANWHILE:
                if not (first and _present(self.connection)):
                    raise  # it is not another run that made what the first migration makes
            except (database.LOCKED, psycopg.errors.DeadlockDetected):
                waited += timeout / 1000
                if waited > self.patience:
                    raise PillarboxError(
                        f"migrate: {what} did not get its locks within {self.patience:.0f} s; they are held by "
                        f"{self._holders()[0]}; what came before it is done: run it again"
                    ) from None
                if pause == _LONGEST_PAUSE:
                    holders, autovacuum = self._holders()
                    timeout = _PAST_AUTOVACUUM if autovacuum else LOCK_TIMEOUT
                    if not reported:
                        self.tell(f"{what} waits for locks held by {holders}")
                        reported = True
            slept = pause * random.uniform(0.5, 1.5)
            sleep(slept)
            waited += slept
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _holders(self) -> tuple[str, bool]:
        """The sessions that hold locks in our schema, and whether an autovacuum is among them."""
        rows = self.connection.execute(query("migrate_holders")).fetchall()
        who = "; ".join(f"pid {pid} ({name}, {state}, {seconds} s)" for pid, name, state, seconds, _ in rows)
        return who or "others", any(autovacuum for *_, autovacuum in rows)


def _apply(connection: psycopg.Connection, step: Migration) -> bool:
    """False when another run has done it meanwhile."""
    applied = _applied(connection)
    _refuse_unreleased(applied, _name(connection))
    refuse_newer(applied, known())
    if step.number in applied:
        return False
    connection.execute(query("migrate_literals"))
    connection.execute(step.sql)
    connection.execute(query("migrate_record"), {"number": step.number, "name": step.name})
    reach("migrate.before_commit")
    return True


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
def connected(conninfo: str) -> Iterator[psycopg.Connection]:
    """A connection for a migration; what ends it, or a right that is missing, is one line."""
    try:
        connection = psycopg.connect(database.complete(conninfo, "pillarbox migrate"), autocommit=True)
    except psycopg.OperationalError as error:
        raise database.unavailable(error) from None
    with connection, database.outage_in_one_line(connection), database.rights_in_one_line(connection.info):
        database.refuse_unusable(connection.info)
        yield connection
