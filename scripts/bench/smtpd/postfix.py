"""postfix — an instance of Debian's Postfix with its own configuration, queue and port

Owns: a private instance under the run's directory, started in the foreground and stopped at the end.
Guarantees: the system's own Postfix, if it runs, is not touched. Every message is accepted as usual: one queue file,
    flushed before 250. HOLD puts mail on hold, so that only acceptance is measured, and less of it than for mail that
    is delivered; `relay` delivers to one next hop. Both show Postfix at its best.
Raises: nothing if Postfix is missing or we are not root: the book gets a note with the reason.
See: master(8), cleanup(8), access(5) HOLD; postconf(5) in_flow_delay, off because it slows Postfix down on purpose.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import shutil
import subprocess
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from scripts.bench.book import POSTFIX
from scripts.bench.core.pgqueuer import CannotMeasureError
from scripts.bench.sink import free_port
from scripts.bench.smtpd.cpu import spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scripts.bench.book import Book

_OWNER: Final = "postfix"
_GROUP: Final = "postdrop"
_PATIENCE: Final = 30.0  # seconds to start and to stop
_PROGRAMS: Final = (Path("/usr/sbin"), Path("/usr/lib/postfix/sbin"))

_MAIN: Final = """\
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
command_directory = {commands}
daemon_directory = {daemons}
maillog_file = {folder}/log
maillog_file_prefixes = /
mail_owner = {owner}
setgid_group = {group}
myhostname = bench.pillarbox.example
mydestination =
alias_maps =
alias_database =
local_recipient_maps =
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mynetworks = 127.0.0.0/8
in_flow_delay = 0
"""
#: Settings of main.cf that put all mail on hold.
HOLD: Final = """\
smtpd_recipient_restrictions = check_recipient_access static:HOLD, permit_mynetworks, reject
default_process_limit = 200
"""
_MASTER: Final = """\
127.0.0.1:{port} inet n - n - - smtpd
pickup unix n - n 3600 1 pickup
cleanup unix n - n - 0 cleanup
qmgr unix n - n 3600 1 qmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
trace unix - - n - 0 bounce
proxymap unix - - n - - proxymap
smtp unix - - n - - smtp
showq unix n - n - - showq
error unix - - n - - error
retry unix - - n - - error
scache unix - - n - 1 scache
anvil unix - - n - 1 anvil
postlog unix-dgram n - n - 1 postlogd
"""


@dataclass(slots=True)
class Log:
    """Counts from Postfix's log; each look reads only the new lines."""

    path: Path
    sent: int = 0
    removed: int = 0
    _offset: int = field(default=0, init=False)

    def look(self) -> None:
        """Count complete lines since the last look."""
        with self.path.open("rb") as log:
            log.seek(self._offset)
            new = log.read()
        lines = new[: new.rfind(b"\n") + 1]
        self._offset += len(lines)
        self.sent += lines.count(b" status=sent ")
        self.removed += lines.count(b": removed\n")


@dataclass(frozen=True, slots=True)
class Postfix:
    """A running instance."""

    folder: Path
    port: int
    version: str
    log: Log

    def spent(self) -> dict[str, float]:
        """Seconds of processor time used so far, by program."""
        return {POSTFIX: spent(int((self.folder / "queue" / "pid" / "master.pid").read_text()))}

    def held(self, size: int) -> int:
        """The number of messages of at least `size` octets on hold."""
        return sum(1 for file in self._files() if file.stat().st_size >= size)

    def sent(self) -> tuple[int, int]:
        """The numbers of delivered recipients and of removed messages in its log."""
        self.log.look()
        return self.log.sent, self.log.removed

    def forget(self) -> None:
        """Delete the messages on hold."""
        for file in self._files():
            file.unlink()

    def _files(self) -> list[Path]:
        return [file for file in (self.folder / "queue" / "hold").rglob("*") if file.is_file()]


def relay(port: int) -> str:
    """Settings of main.cf that relay all mail to this port of 127.0.0.1, with Postfix's default limits."""
    return f"relayhost = [127.0.0.1]:{port}\nsmtpd_relay_restrictions = permit_mynetworks, reject\n"


@asynccontextmanager
async def beside(book: Book, folder: Path, settings: str = HOLD) -> AsyncIterator[Postfix | None]:
    """Postfix for the block, with its version in the book; None, and a note, if it cannot be measured."""
    async with AsyncExitStack() as stack:
        peer: Postfix | None = None
        try:
            peer = await stack.enter_async_context(_postfix(folder, settings))
            book.settings[POSTFIX] = peer.version
        except CannotMeasureError as error:
            book.notes.append(f"{POSTFIX}: unmeasured; {error}")
        yield peer


@asynccontextmanager
async def _postfix(folder: Path, settings: str) -> AsyncIterator[Postfix]:
    """Postfix on a port of 127.0.0.1 for the block; `settings` adds lines to main.cf."""
    version, port = _version(), free_port()
    folder = _write(folder, port, settings)
    program = await asyncio.create_subprocess_exec(
        *(_PROGRAMS[0] / "postfix", "-c", folder / "etc", "start-fg"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        stdin=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await _listening(folder, port, program)
        yield Postfix(folder, port, version, Log(folder / "log"))
    finally:
        # The started program is a script; master(8) would outlive it.
        stopping = await asyncio.create_subprocess_exec(
            *(_PROGRAMS[0] / "postfix", "-c", folder / "etc", "stop"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await asyncio.wait_for(stopping.wait(), _PATIENCE)
        await asyncio.wait_for(program.wait(), _PATIENCE)


def _version() -> str:
    """Its version; CannotMeasureError if it is missing or cannot run."""
    for folder, name in ((_PROGRAMS[0], "postfix"), (_PROGRAMS[0], "postconf"), (_PROGRAMS[1], "master")):
        if not (folder / name).is_file():
            raise CannotMeasureError(f"{folder / name} is missing; Debian, Ubuntu: apt-get install postfix")
    if os.geteuid() != 0:
        raise CannotMeasureError("only root can start Postfix")
    try:
        pwd.getpwnam(_OWNER)
        grp.getgrnam(_GROUP)
    except KeyError as error:
        raise CannotMeasureError(f"Postfix is not completely installed: {error.args[0]}") from None
    asked = subprocess.run(  # noqa: S603 - the program we just found
        [str(_PROGRAMS[0] / "postconf"), "-d", "-h", "mail_version"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def _write(folder: Path, port: int, settings: str) -> Path:
    """Write its files; the folder's absolute path."""
    folder = folder.resolve()
    etc = folder / "etc"
    for each in (etc, folder / "queue", folder / "data"):
        each.mkdir(parents=True, exist_ok=True)
    shutil.chown(folder / "data", _OWNER)
    names = {"folder": folder, "commands": _PROGRAMS[0], "daemons": _PROGRAMS[1], "owner": _OWNER, "group": _GROUP}
    (etc / "main.cf").write_text(_MAIN.format(**names) + settings)
    (etc / "master.cf").write_text(_MASTER.format(port=port))
    return folder


async def _listening(folder: Path, port: int, program: asyncio.subprocess.Process) -> None:
    """Return when it sends its greeting."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE
    while loop.time() < deadline and program.returncode is None:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        greeting = await asyncio.wait_for(reader.readline(), _PATIENCE)
        writer.close()
        if greeting.startswith(b"220"):
            return
        break
    log = folder / "log"
    said = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
    raise CannotMeasureError(f"Postfix did not start: {' '.join(said) or 'its log is empty'}")
