"""usage — measures a step: wall time, processor time and memory of every process that takes part

Owns: the set of processes: this one, the embedded server's, and their descendants.
Guarantees: processor time includes processes that began and ended within the step. Memory is the peak, sampled every
    second, as proportional set size: memory that processes share is counted once.
See: proc(5), stat and smaps_rollup.
"""

from __future__ import annotations

import os
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final

from shared.postgres.embedded.postmaster import ServerFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOOK: Final = 1.0  # seconds; one sample takes some hundredths of a second
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Fields of /proc/PID/stat, counted from the state: the parent; user and system time, own and of reaped children.
_PARENT: Final = 1
_TIMES: Final = slice(11, 15)
_KINDS: Final = {"java": "Java", "postgres": "PostgreSQL"}


@dataclass
class Usage:
    """The cost of a step."""

    seconds: float = 0.0
    octets: int = 0


@contextmanager
def measured(name: str, var: Path) -> Iterator[Usage]:
    """Measure the block, including the server under `var`, and print its cost."""
    usage, ended = Usage(), Event()
    server = ServerFiles(var).status()
    roots = [os.getpid(), *([server.pid] if server is not None else [])]

    def look() -> None:
        while not ended.wait(_LOOK):
            usage.octets = max(usage.octets, sum(map(_octets, _processes(roots))))

    looking = Thread(target=look, daemon=True)
    before, begun = _times(roots), monotonic()
    looking.start()
    try:
        yield usage
    finally:
        usage.seconds = monotonic() - begun
        ended.set()
        looking.join()
    spent = {kind: seconds - before[kind] for kind, seconds in _times(roots).items()}
    parts = ", ".join(f"{kind} {seconds:.1f}" for kind, seconds in sorted(spent.items()))
    print(
        f"{name}: {usage.seconds:.1f} s; processor {sum(spent.values()):.1f} s ({parts}); at most "
        f"{usage.octets >> 20} MB",
        flush=True,
    )


def _times(roots: list[int]) -> defaultdict[str, float]:
    """Seconds of processor time, by kind of process."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, fields in _processes(roots).values():
        found[_KINDS.get(name, "Python")] += sum(map(int, fields[_TIMES])) / _TICKS
    return found


def _processes(roots: list[int]) -> dict[int, tuple[str, list[str]]]:
    """Name and stat fields of the roots and their descendants, by process id."""
    every: dict[int, tuple[str, list[str]]] = {}
    children = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            before, _, after = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
            pid, fields = int(folder.name), after.split()
            every[pid] = before.partition("(")[2], fields
            children[int(fields[_PARENT])].append(pid)
    found, wanted = {}, list(roots)
    while wanted:
        pid = wanted.pop()
        if pid in every:
            found[pid] = every[pid]
            wanted += children[pid]
    return found


def _octets(pid: int) -> int:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) * 1024
    return 0
