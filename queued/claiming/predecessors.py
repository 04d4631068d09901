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
from contextlib import contextmanager
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
    held = _locked(var / "workers", f"{identity.id}@{identity.host}")
    try:
        yield [] if held is None else _entered(held, identity)
    finally:
        if held is not None:
            os.close(held)


def _locked(folder: Path, name: str) -> int | None:
    """The open file, if this process may be the one that runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        events.emit("claim.no_successor", error=error)
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        running = isinstance(error, BlockingIOError)
        events.emit("claim.no_successor", error="another process has the same name" if running else error)
        return None
    return held


def _entered(held: int, identity: Identity) -> list[str]:
    """The names that were there; ours is the last from now on."""
    try:
        with os.fdopen(os.dup(held), "r+", encoding="utf-8", errors="replace") as file:
            names = [
                name
                for name in file.read().splitlines()
                if name.startswith(f"{identity.id}@{identity.host}:") and name.isprintable()  # also after a power cut
            ]
            file.seek(0)
            file.write("".join(f"{name}\n" for name in (*names[-_MOST:], identity)))
            file.truncate()
    except OSError as error:
        events.emit("claim.no_successor", error=error)
        return []
    return names[-_MOST:]
