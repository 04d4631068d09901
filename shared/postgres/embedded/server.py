"""server — starts PostgreSQL over a data directory, and waits until it accepts clients

Owns: initdb, the start of the postmaster in a session of its own, the wait through crash recovery, and the
creation of our database.
Guarantees: the server outlives the process that started it, Ctrl-C in its terminal included. A data directory
appears whole or not at all. The next start recovers from a killed postmaster.
Raises: DatabaseUnavailable, one line with the path of the server log; OSError.
See: PostgreSQL manual, "initdb", "postgres", "Preventing Server Spoofing" (socket directory).
Bugs: a service manager that kills a whole control group kills the server with it; commits survive that.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, BinaryIO

from shared.errors import DatabaseUnavailable
from shared.lifecycle import how_it_ended
from shared.postgres.embedded.account import Account, choose_account, open_programs, open_way
from shared.postgres.embedded.postmaster import DATABASE, POLL, REPORT, ROLE, EmbeddedStatus, ServerFiles
from shared.postgres.embedded.settings import PORT, Machine, render

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_log = logging.getLogger("pillarbox.embedded")
_PSQL_TIMEOUT = 20.0  # seconds; a server that is ready answers within milliseconds
_CONNECTION_LOST = 2  # psql's exit status for that, as for a refused connection
_LAST_WORDS = 8192  # bytes of the log's end in which the reason of a failure is looked for
# A backend that copies a large message in asks for its size of memory and gives it back, for each message. As the C
# library comes, it would have every page of it from the kernel each time: a quarter of PostgreSQL's time for a message
# of 1 MB. With these it keeps up to 16 MiB. See mallopt(3); other C libraries do not read them.
_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 24),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 24),
    "MALLOC_TOP_PAD_": str(1 << 22),
}
_BUILTIN_LOCALE = 17  # the major version that brought the builtin locale provider

# The shell goes at once and the server becomes a child of init: no zombie of ours can look alive to the next
# start. $! is its process id; standard error is the log.
_DETACH = '"$@" </dev/null >&2 & echo $!'


class EmbeddedServer:
    """PostgreSQL `binaries` (a bin directory of major version `version`) over the data under `place`."""

    def __init__(self, binaries: Path, version: int, place: ServerFiles, *, trees: Sequence[Path] = ()) -> None:
        """`trees` are the directories of program files which an account other than ours must be able to read."""
        self.binaries = binaries.resolve()
        self.version = version
        self.place = place
        self._trees = trees
        self._account = choose_account(place.data)
        self._log_start = 0  # where this start's lines begin in the server log

    def start(self) -> EmbeddedStatus:
        """Start the server unless it runs; return when it accepts connections and our database exists.

        Recovery after a crash may take minutes: there is no limit while the postmaster lives.
        """
        place = self.place
        made = place.version()
        if made not in {None, self.version}:
            raise DatabaseUnavailable(
                f"{place.data} belongs to PostgreSQL {made}, and this is PostgreSQL {self.version}: dump it "
                f"with version {made} and restore it here, or move it away; server log: {place.log}"
            )
        began = time.monotonic()
        while True:
            status = self._find() or self._launch_or_find_elsewhere()
            if status is None:
                continue
            done = self._create_database()
            if done.returncode == 0:
                return status
            if done.returncode != _CONNECTION_LOST or time.monotonic() - began > _PSQL_TIMEOUT:
                raise DatabaseUnavailable(
                    f"PostgreSQL over {place.data} refuses us: {_reason(done.stderr)}; server log: {place.log}"
                )
            time.sleep(POLL)  # it was asked to stop a moment ago, and will soon say so

    def _find(self) -> EmbeddedStatus | None:
        """The server that runs, once it is ready; None when there is none, or it ended meanwhile."""
        status = self.place.status()
        return self._await_ready(status.pid) if status and not status.ready else status

    def _launch_or_find_elsewhere(self) -> EmbeddedStatus | None:
        """A server that we start, or one in another container over the same directory; None if one appeared here."""
        held = self.place.claim()
        if held is None and self._psql("SELECT 1").returncode == 0 and (status := self.place.recorded()):
            return status
        if held is None:
            held = self.place.claim_from_orphans()
        return None if held is None else self._launch(held)

    def _launch(self, held: int) -> EmbeddedStatus:
        """Prepare everything, start the postmaster, which inherits the lock `held`, and wait for it."""
        place, account = self.place, self._account
        try:
            if account is not None:
                open_way((place.data, place.socket(), self.binaries, *self._trees), account)
                open_programs(self._trees, account)
            self._initialize()
            socket = self._make_socket_directory()
            self._write_settings(socket)
            # We hold the lock, so both are stale; a reused process id, or a zombie's, would stop the start.
            for recorded in (place.data / "postmaster.pid", socket / f".s.PGSQL.{PORT}.lock"):
                recorded.unlink(missing_ok=True)
            command = ("/bin/sh", "-c", _DETACH, "sh", self._program("postgres"), "-D", str(place.data))
            with self._open_log() as log:
                pid = int(_run(*command, account=account, stderr=log, pass_fds=(held,)).stdout)
        finally:
            os.close(held)
        who = account.name if account else "ourselves"
        _log.info("PostgreSQL %d (pid %d) starts over %s as %s", self.version, pid, place.data, who)
        status = self._await_ready(pid)
        if status is None:
            why = _why_it_ended(self._last_words())
            raise DatabaseUnavailable(f"PostgreSQL over {place.data} did not start: {why}; server log: {place.log}")
        return status

    def _initialize(self) -> None:
        """Make the data directory unless it is made."""
        place = self.place
        if place.version() is not None:
            return
        if place.data.exists() and any(place.data.iterdir()):
            raise DatabaseUnavailable(f"{place.data} is not empty and not a PostgreSQL data directory: move it away")
        began = time.monotonic()
        shutil.rmtree(place.unfinished, ignore_errors=True)
        place.unfinished.mkdir(mode=0o700)
        self._own(place.unfinished)
        locale: tuple[str, ...] = ("--locale=C.UTF-8",)
        if self.version >= _BUILTIN_LOCALE:
            # The C library may lack the locale; the builtin one sorts alike everywhere and never changes.
            locale = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")
        done = _run(
            self._program("initdb"),
            f"--pgdata={place.unfinished}",
            f"--username={ROLE}",
            "--auth=trust",
            "--encoding=UTF8",
            *locale,
            "--data-checksums",
            "--no-instructions",
            account=self._account,
        )
        if done.returncode != 0:
            how = _reason(done.stderr) if done.returncode > 0 else how_it_ended(done.returncode)
            raise DatabaseUnavailable(f"initdb for {place.data} failed: {how}")
        with (place.unfinished / "postgresql.conf").open("a", encoding="utf-8") as conf:
            conf.write("\ninclude 'pillarbox.conf'\n")
        place.unfinished.rename(place.data)
        _log.info("made %s for PostgreSQL %d, %.1f s", place.data, self.version, time.monotonic() - began)

    def _make_socket_directory(self) -> Path:
        """A directory that only the server's account can enter; refuse one that another user made first."""
        socket = self.place.socket()
        socket.mkdir(mode=0o700, exist_ok=True)
        found = socket.lstat()
        owners = {os.geteuid(), self._account.uid if self._account else os.geteuid()}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise DatabaseUnavailable(f"{socket} is not a directory of our own; remove it")
        self._own(socket)
        socket.chmod(0o700)
        return socket

    def _write_settings(self, socket: Path) -> None:
        lz4 = "--with-lz4" in _run(self._program("pg_config"), "--configure", account=self._account).stdout
        text = render(Machine.measure(), socket=socket, cluster=self.place.cluster, lz4=lz4)
        # Made aside and renamed: the directory is the account's, and root must not follow a link found there.
        made, name = tempfile.mkstemp(dir=self.place.data, prefix="pillarbox.conf.")
        with os.fdopen(made, "w", encoding="utf-8") as conf:
            conf.write(text)
            self._own(made)
        os.replace(name, self.place.data / "pillarbox.conf")  # noqa: PTH105  mkstemp gives a str

    def _open_log(self) -> BinaryIO:
        opened = os.open(self.place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        self._own(opened)
        self._log_start = os.fstat(opened).st_size
        return os.fdopen(opened, "ab")

    def _await_ready(self, pid: int) -> EmbeddedStatus | None:
        """Wait while `pid` lives; None when it ended instead of getting ready."""
        began = reported = time.monotonic()
        while True:
            status = self.place.status()
            if status is not None and status.pid == pid and status.ready:
                return status
            if not self.place.may_be_server(pid):
                return None
            time.sleep(POLL)
            if (now := time.monotonic()) - reported >= REPORT:
                reported = now
                last = self._last_words().strip().rpartition("\n")[2]
                _log.info("PostgreSQL (pid %d) not ready after %d s; its log says: %s", pid, now - began, last)

    def _create_database(self) -> subprocess.CompletedProcess[str]:
        """Create our database unless it exists; what psql said last."""
        found = self._psql(f"SELECT 1 FROM pg_database WHERE datname = '{DATABASE}'")  # noqa: S608  a constant
        if found.returncode == 0 and not found.stdout:
            return self._psql(f"CREATE DATABASE {DATABASE}")
        return found

    def _psql(self, sql: str) -> subprocess.CompletedProcess[str]:
        arguments = ("-XAtqw", "-d", self.place.uri("postgres"), "-c", sql)
        # As ourselves: this proves that we get in, and needs no way opened for the account.
        return _run(self._program("psql"), *arguments, account=None, timeout=_PSQL_TIMEOUT)

    def _program(self, name: str) -> str:
        return str(self.binaries / name)

    def _own(self, path: Path | int) -> None:
        if self._account is not None:
            os.chown(path, self._account.uid, self._account.gid)

    def _last_words(self) -> str:
        with self.place.log.open("rb") as log:
            log.seek(max(self._log_start, log.seek(0, os.SEEK_END) - _LAST_WORDS))
            return log.read().decode("utf-8", "backslashreplace")


def _run(
    *command: str,
    account: Account | None,
    stderr: int | BinaryIO = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` as `account`, in a session of its own, and return what it printed."""
    return subprocess.run(  # noqa: S603  programs by full path, arguments of ours, nothing interpolated
        command,
        check=False,
        cwd="/",  # the account may not be allowed into ours
        env=_environment(),
        errors="backslashreplace",
        pass_fds=pass_fds,
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        timeout=timeout,
        user=account.uid if account else None,
        group=account.gid if account else None,
        extra_groups=() if account else None,
    )


def _environment() -> dict[str, str]:
    """Ours without what libpq and the server would read: PGPORT, PGDATA, PGOPTIONS and the like."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return _MEMORY | ours | {"LC_ALL": "C"}


def _reason(text: str) -> str:
    """The last line that says why, without what precedes the severity; else the last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        for severity in ("PANIC:", "FATAL:", "error:"):
            if severity in line:
                return line.partition(severity)[2].strip()
    return lines[-1] if lines else "it said nothing"


def _why_it_ended(log: str) -> str:
    """As `_reason`, of a server's log. The server is not our child: that it was killed shows only in its silence."""
    for line in reversed(log.splitlines()):
        if " was terminated by signal " in line:  # a process of the server's; that the server then ends says less
            return line.partition("LOG:")[2].strip()
    if any(severity in log for severity in ("PANIC:", "FATAL:", "error:")):
        return _reason(log)
    return f"it ended without saying why, as if killed (for want of memory?); its log ends: {_reason(log)}"
