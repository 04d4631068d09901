"""released_dump — writes the dump of a new database, from which the tests upgrade, with fixed values for what is random

Owns: tests/fixtures/database/schema-0.1.0.sql, until 0.1.0 is released: a release is never edited.
Guarantees: two dumps of one schema are equal octet by octet, so that branches that change different parts of it merge:
    secrets are zeros, times are the first of January 2026, and the versions of server and pg_dump are left out.
Needs: Debian's PostgreSQL 15, the oldest that we support: a newer pg_dump writes what 15 does not read.
Raises: DatabaseUnavailable, CalledProcessError; where 15 is missing, exit status 1 and one line.
See: tests/integration/schema/test_upgrade_from_released.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import make_conninfo

from shared.postgres.embedded import embedded
from shared.postgres.embedded.postmaster import ServerFiles
from shared.postgres.embedded.server import EmbeddedServer
from shared.postgres.migrate import migrate

_PROGRAMS: Final = Path("/usr/lib/postgresql/15/bin")
_DUMP: Final = Path(__file__).resolve().parents[2] / "tests/fixtures/database/schema-0.1.0.sql"
_FIRST_LINE: Final = (
    "-- The database of release 0.1.0, as `pillarbox migrate` made it"
    " (see test_upgrade_from_released.py). A release is never edited.\n"
)
_LEAVES: Final = {"123": ["1", "2", "3"], "456": ["4", "5", "6"]}  # the leaves that the shipped configuration names
#: The owner is an ordinary role, as an operator's is.
_OWNER: Final = "mailops"
_OPTIONS: Final = ("--no-owner", "--column-inserts", "--exclude-table=pillarbox.*_20??????")
_FIXED: Final = (
    (re.compile(r"^\\.*\n", re.MULTILINE), ""),  # psql's own commands
    (re.compile(r"^-- Dumped (?:from database|by pg_dump) version .*\n", re.MULTILINE), ""),
    (re.compile(r"(?<=, '\\x)[0-9a-f]{64}(?='\);$)", re.MULTILINE), "0" * 64),
    (re.compile(r"'20\d\d-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d'"), "'2026-01-01 00:00:00+00'"),
)


def main() -> int:
    """Write the dump; the exit status."""
    if not (_PROGRAMS / "pg_dump").exists():
        print(f"PostgreSQL 15 is not in {_PROGRAMS}: apt-get install postgresql-15", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="pillarbox-dump-") as folder:
        var = Path(folder)
        try:
            _DUMP.write_text(_FIRST_LINE + fixed(_dump(EmbeddedServer(_PROGRAMS, 15, ServerFiles(var)).start().uri)))
        finally:
            embedded.stop(var, mode="immediate")
    return 0


def fixed(dump: str) -> str:
    """The dump without what differs from one run to the next."""
    for pattern, value in _FIXED:
        dump = pattern.sub(value, dump)
    return dump


def _dump(administrator: str) -> str:
    """What pg_dump says of a database that an ordinary role has just migrated."""
    with psycopg.connect(administrator, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {_OWNER} LOGIN CREATEROLE")
        connection.execute(f"CREATE DATABASE released OWNER {_OWNER}")
    migrate(make_conninfo(administrator, user=_OWNER, dbname="released"), _LEAVES)
    words = [str(_PROGRAMS / "pg_dump"), *_OPTIONS, "-d", make_conninfo(administrator, dbname="released")]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603 - of Debian


if __name__ == "__main__":
    sys.exit(main())
