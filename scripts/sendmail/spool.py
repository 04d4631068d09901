"""spool — keeps mail on disk while smtpd is away

Owns: the files of the spool: one for each message, with its envelope, length and hash in the first line.
Guarantees: `keep` returns once the file and its name are on the disk. A file that is not whole was left by a process
    that was killed before it ended with status 0: it is never sent, and goes after a day. One process at a time has a
    message. Files that are linked elsewhere, and entries that are not files, are left alone.
Raises: OSError.
See: docs/how-to/send/send-from-cron-and-scripts.md. The folder may be writable for all and readable for its owner alone
    (mode 1733): names cannot be guessed, and its owner may delete what others put there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import stat
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scripts.sendmail.message import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME: Final = re.compile(r"(?:message|refused)\.[0-9a-f]{32}")
_DAY: Final = 86_400.0
_READ_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Kept:
    """A message of the spool. uid: whose it is; since: Unix time."""

    path: Path
    message: Outgoing
    uid: int
    since: float


def keep(folder: Path, message: Outgoing) -> Path:
    """Write the message and wait until it is on the disk."""
    head = {
        "sender": message.sender,
        "recipients": message.recipients,
        "size": len(message.content),
        "sha256": hashlib.sha256(message.content).hexdigest(),
        "dsn": [message.notify, message.returned, message.envid],
    }
    path = folder / f"message.{uuid.uuid4().hex}"
    made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(made, 0o644)  # whatever the umask: the owner of the folder has to read it
        for octets in (json.dumps(head).encode() + b"\n", message.content):
            written = 0
            while written < len(octets):
                written += os.write(made, octets[written:])
        os.fsync(made)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(made)
    _sync(folder)
    return path


def waiting(folder: Path) -> list[Path]:
    """The messages of the spool, the oldest first; those that were refused too."""
    found = []
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # sent meanwhile
                found.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(found)]


@contextmanager
def taken(path: Path) -> Iterator[Kept | None]:
    """The message, for this process alone; None where another one has it, or where it is not a whole message."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
            yield None
            return
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not path.exists():  # another process has sent it meanwhile
            yield None
            return
        message = _read(opened)
        if message is None and time.time() - found.st_mtime > _DAY:
            remove(path)
        yield None if message is None else Kept(path, message, found.st_uid, found.st_mtime)
    finally:
        os.close(opened)


def remove(path: Path) -> None:
    """Forget a message that was sent."""
    path.unlink()
    _sync(path.parent)


def refuse(path: Path) -> None:
    """Keep a message that smtpd refuses for good, for a person to look at."""
    path.rename(path.with_name(path.name.replace("message.", "refused.")))
    _sync(path.parent)


def _read(opened: int) -> Outgoing | None:
    """The message of an open file; None where it is not whole."""
    pieces = []
    while piece := os.read(opened, _READ_AT_ONCE):
        pieces.append(piece)
    first, _, content = b"".join(pieces).partition(b"\n")
    try:
        head = json.loads(first)
        whole = head["size"] == len(content) and head["sha256"] == hashlib.sha256(content).hexdigest()
        notify, returned, envid = map(str, head.get("dsn", ("", "", "")))
        to = tuple(map(str, head["recipients"]))
        return Outgoing(str(head["sender"]), to, content, notify, returned, envid) if whole else None
    except (ValueError, TypeError, KeyError):
        return None


def _sync(folder: Path) -> None:
    """Have the names of a folder on the disk; where we may not open it, everything."""
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        os.sync()
        return
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
