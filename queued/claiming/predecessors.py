"""predecessors — which earlier processes of this worker have surely ended

Owns: a file for each worker and host under `environment.var`, with the names of its last processes, locked by the one
    that runs.
Guarantees: a name is given only if its process has ended, however it ended: each was written by a process that held the
    lock, which the kernel releases at the end of a process, and not before (flock(2)). A process that is suspended
    holds it, and a second worker of the same name gets no names. Where the file cannot be used there are none, and
    claims of processes that ended wait for their lease.
See: sql/README.md, "Crash table", 7; queued/claiming/claim.py.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager
from io import FileIO
from typing import TYPE_CHECKING, Final

from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.postgres.presence import Identity

_MOST: Final = 8  # names: of processes before these the leases are over, but for a worker that dies again and again


@contextmanager
def succeeding(var: Path, identity: Identity) -> Iterator[list[str]]:
    """The names of ended processes of this worker on this host, oldest first; for the block ours is added to them."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context(_opened(var / "workers", f"{identity.id}@{identity.host}"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ended = _entered(file, identity)
        except OSError as error:
            running = isinstance(error, BlockingIOError)
            events.emit("claim.no_successor", error="another process has the same name" if running else error)
            ended = []
        yield ended


def _opened(folder: Path, name: str) -> FileIO:
    """The file of a worker, made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return FileIO(os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")


def _entered(file: FileIO, identity: Identity) -> list[str]:
    """The last names that were there; ours is behind them from now on."""
    ours = f"{identity.id}@{identity.host}:"
    found = file.readall().decode(errors="replace").splitlines()
    names = [name for name in found if name.startswith(ours) and name.isprintable()][-_MOST:]  # also after a power cut
    file.seek(0)
    file.write("".join(f"{name}\n" for name in (*names, identity)).encode())
    file.truncate()
    return names
