"""cpu — measures the processor time of a message, which depends little on other work on the machine

Owns: reading the processor time of groups of processes.
Guarantees: children that have ended are counted once their parent has waited for them.
See: proc_pid_stat(5); times(2) for its unit.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_TICK: Final = os.sysconf("SC_CLK_TCK")
# Fields of stat after the name in parentheses: utime, stime, and both for children that were waited for.
_TIMES: Final = slice(11, 15)


def below(pid: int) -> list[int]:
    """A process and its running descendants."""
    found = [pid]
    for each in found:
        found += children(each)
    return found


def spent(pid: int) -> float:
    """Seconds of processor time used by a process and its descendants."""
    return sum(_used(each) for each in below(pid))


def _used(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    return sum(int(word) for word in text.rpartition(")")[2].split()[_TIMES]) / _TICK


def each(before: Mapping[str, float], after: Mapping[str, float], messages: int) -> dict[str, float]:
    """Milliseconds per message and program, from the seconds used before and after."""
    return {name: 1e3 * (after[name] - before[name]) / messages for name in after}


def children(pid: int) -> list[int]:
    """The running children of a process."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has just ended
            found += map(int, children.read_text(encoding="ascii").split())
    return found
