"""only_one — one `pillarbox up` for each `var`

Owns: the file up.lock, which a running `up` holds locked, with its process id and since when it runs.
Guarantees: the lock ends with the process, however it ends.
Raises: InUse with who has it; OSError of the folder.
"""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


_FILE: Final = "up.lock"


class InUse(PillarboxError):
    """Another `pillarbox up` runs over the same folder."""

    exit_status = 69  # EX_UNAVAILABLE, sysexits.h


@contextmanager
def only_one(var: Path) -> Iterator[None]:
    """Hold the folder for the block."""
    var.mkdir(parents=True, exist_ok=True)
    with (var / _FILE).open("a+", encoding="ascii") as lock:
        if not _taken(lock):
            raise InUse(f"`pillarbox up` already runs over {var} ({_who(lock)}); stop that one first")
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%SZ}\n")
        lock.flush()
        yield


def who_has(var: Path) -> str | None:
    """The `up` that runs over this folder, as `pid N, since …`; None when none runs, or it cannot be known."""
    try:
        with (var / _FILE).open(encoding="ascii") as lock:
            return None if _taken(lock) else _who(lock)
    except OSError:
        return None


def pid_of(var: Path) -> int | None:
    """The process id of the `up` that runs over this folder."""
    found = re.match(r"pid (\d+)", who_has(var) or "")
    return int(found[1]) if found else None


def _taken(lock: TextIO) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _who(lock: TextIO) -> str:
    lock.seek(0)
    return lock.read().strip() or "it does not say who"
