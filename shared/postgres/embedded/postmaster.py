"""postmaster — the server that runs over a data directory, and its end

Owns: the names of the files under `var`, the reading of postmaster.pid, the lock that says "alive", the signals.
Guarantees: only a server over this very data directory is signalled. "Alive" is a flock that every process of
the server inherits, so it does not depend on a process id: after kill -9 of all, or in a container that reuses ids,
a stale postmaster.pid does no harm.
Raises: DatabaseUnavailable when server processes hold the data and cannot be ended; OSError.
See: PostgreSQL manual, "Shutting Down the Server" (signals); source file miscadmin.h (lines of postmaster.pid).
Bugs: without /proc (not Linux) any living process with the recorded id counts as the server.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from shared.errors import DatabaseUnavailable
from shared.postgres.embedded.settings import PORT

ROLE = "pillarbox"
DATABASE = "pillarbox"
_ENDED: Final = frozenset({"", "Z", "X"})  # gone, a zombie, dead
POLL = 0.02  # seconds between two looks at a server that starts or stops
REPORT = 10.0  # seconds between two progress lines while we wait

type StopMode = Literal["fast", "immediate", "smart"]

_log = logging.getLogger("pillarbox.embedded")
_PROC = Path("/proc")
_SIGNALS: dict[StopMode, signal.Signals] = {
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
    "smart": signal.SIGTERM,
}
_SOCKET_LIMIT = 100  # bytes; sun_path holds 108 on Linux and 104 elsewhere, with the final NUL
_ORPHANS_END_WITHIN = 30.0  # seconds; they end at once on SIGQUIT unless stuck in the kernel
_SOCKET_LINE = slice(4, 5)  # of postmaster.pid; empty until the socket exists
_LINES_BEFORE_STATUS = 7  # pid, data, start time, port, socket directory, address, shared memory


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """A server that runs: its process id, libpq URI, data directory, major version, and if it takes clients."""

    pid: int
    uri: str
    data: Path
    version: int
    ready: bool


class ServerFiles:
    """The files of one embedded server, all below one `var`."""

    def __init__(self, var: Path) -> None:
        """`var` need not exist; its symbolic links are followed now, so that one place has one name."""
        self.var = var.resolve()
        self.data = self.var / "postgres"
        self.unfinished = self.var / "postgres.new"  # initdb works here, so that a killed one leaves no half
        self.log = self.var / "postgres.log"
        self.lock = self.var / "postgres.lock"
        self.alive = self.var / "postgres.alive"
        digest = hashlib.sha256(os.fsencode(self.var)).hexdigest()[:16]
        self.cluster = f"pillarbox-{digest}"

    def socket(self) -> Path:
        """The directory for the Unix socket: under `var`, or a short one where libpq could not name that.

        libpq reads a comma in `host` as the border between two hosts.
        """
        beside = self.var / "postgres.socket"
        if len(os.fsencode(beside / f".s.PGSQL.{PORT}")) <= _SOCKET_LIMIT and "," not in str(beside):
            return beside
        return Path(tempfile.gettempdir()) / self.cluster

    def uri(self, database: str = DATABASE) -> str:
        """The libpq URI of `database`; the socket is where the server that runs says it is."""
        socket = "".join(self._record()[_SOCKET_LINE]) or str(self.socket())
        return f"postgresql:///{quote(database, safe='')}?host={quote(socket)}&port={PORT}&user={ROLE}"

    def status(self) -> EmbeddedStatus | None:
        """The server over this data directory; None when none runs that is visible from here."""
        recorded = self.recorded()
        return recorded if recorded and self.is_server(recorded.pid) else None

    def recorded(self) -> EmbeddedStatus | None:
        """The content of postmaster.pid, which a killed server leaves behind; None without one."""
        lines = self._record()
        if not lines:
            return None
        ready = lines[_LINES_BEFORE_STATUS:] == ["ready"]
        return EmbeddedStatus(int(lines[0]), self.uri(), self.data, self.version() or 0, ready)

    def version(self) -> int | None:
        """The major version that the data directory belongs to; None when it is not made yet."""
        try:
            return int((self.data / "PG_VERSION").read_text(encoding="ascii"))
        except FileNotFoundError:
            return None

    def is_server(self, pid: int) -> bool:
        """Whether `pid` lives and was started over this data directory (a zombie has no command line)."""
        if _PROC.joinpath("self").exists():
            return os.fsencode(self.data) in _command_line(pid).split(b"\0")
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def may_be_server(self, pid: int) -> bool:
        """The same, or `pid` is within execve, where a process has no command line: on a busy machine for a while."""
        return self.is_server(pid) or (not _command_line(pid) and _state(pid) not in _ENDED)

    def stop(self, mode: StopMode) -> bool:
        """End the server and wait until it is gone, however long that takes; False when none ran.

        "fast" disconnects clients, "smart" waits for them, "immediate" leaves recovery to the next start.
        """
        status = self.status()
        if status is None:
            return False
        os.kill(status.pid, _SIGNALS[mode])
        began = reported = time.monotonic()
        while self.is_server(status.pid):
            time.sleep(POLL)
            if (now := time.monotonic()) - reported >= REPORT:
                reported = now
                _log.info("PostgreSQL (pid %d) is still stopping after %d s", status.pid, now - began)
        _log.info("PostgreSQL (pid %d) stopped, %.1f s", status.pid, time.monotonic() - began)
        return True

    def claim(self) -> int | None:
        """An open file that a new server must inherit; None while any process of an old one lives."""
        held = os.open(self.alive, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return None
        return held

    def claim_from_orphans(self) -> int | None:
        """As `claim`, after ending what a killed postmaster left behind: backends deep in a query outlive it.

        SIGQUIT is what the postmaster itself sends them after a crash; their commits are in the WAL. None once a server
        runs: its starter was killed before the server had written its process id.
        """
        deadline = time.monotonic() + _ORPHANS_END_WITHIN
        while (held := self.claim()) is None:
            if self.status() is not None:
                return None
            for pid in self._orphans():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGQUIT)
            if time.monotonic() > deadline:
                raise DatabaseUnavailable(
                    f"{self.data} is in use by PostgreSQL processes that are not visible from here or do not end "
                    f"(another container with the same directory?); stop them first; server log: {self.log}"
                )
            time.sleep(POLL)
        return held

    def _record(self) -> list[str]:
        """The lines of postmaster.pid, stripped; empty when there is none or it is being written."""
        try:
            text = (self.data / "postmaster.pid").read_text(encoding="utf-8", errors="surrogateescape")
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [line.strip() for line in text.splitlines()]

    def _orphans(self) -> list[int]:
        title = f"postgres: {self.cluster}: ".encode()  # cluster_name is part of every child's title
        pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
        children = [pid for pid in pids if _command_line(pid).startswith(title)]
        return [pid for pid in children if not self.is_server(_parent(pid))]


def _parent(pid: int) -> int:
    """The process id of its parent; 0 if it is gone."""
    return int(_state_and_parent(pid)[1])


def _state(pid: int) -> str:
    """The letter of its state, as proc(5) has them; "" if it is gone."""
    return _state_and_parent(pid)[0]


def _state_and_parent(pid: int) -> tuple[str, str]:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", "0"
    state, parent, *_ = text.rpartition(")")[2].split()  # proc(5): a name in parentheses, the state, the parent
    return state, parent


def _command_line(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
