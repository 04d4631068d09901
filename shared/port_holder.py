"""port_holder — the process that listens on a port that cannot be bound

Guarantees: reads /proc only, and what this user may see there; without /proc, or for another user's process, it says as
    much as is known.
See: proc_pid_fd(5), proc_net(5); Linux only.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.errors import cause

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC: Final = Path("/proc")
_LISTEN: Final = "0A"  # the state TCP_LISTEN
_LONGEST: Final = 120  # characters of a command


def why(error: BaseException, address: str, port: int) -> str:
    """The reason of an error at binding, in one line; where the port is in use, by whom."""
    said = cause(error)
    if getattr(error, "errno", None) != errno.EADDRINUSE:
        return said
    return f"{said}{holder(address, port)}"


def holder(address: str, port: int) -> str:
    """` by pid 4711 (its command)`, as far as it is known; "" where nothing is."""
    for inode, uid in _listening(address, port):
        for pid in _holding(inode):
            return f" by pid {pid} ({_command(pid)})"
        return f" by a process of the user with id {uid}"
    return ""


def _listening(address: str, port: int) -> Iterator[tuple[str, str]]:
    """The inode and the user's id of each socket that listens there, or on every address."""
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                at, _, number = words[1].partition(":")
                if words[3] == _LISTEN and int(number, 16) == port and _meets(at, address):
                    yield words[9], words[7]


def _meets(written: str, address: str) -> bool:
    """Whether a socket at this address, in /proc's notation, is in the way of one at `address`."""
    octets = b"".join(bytes.fromhex(written[start : start + 8])[::-1] for start in range(0, len(written), 8))
    theirs = ip_address(octets)
    with suppress(ValueError):
        ours = ip_address(address)
        return theirs == ours or theirs.is_unspecified or ours.is_unspecified
    return True  # a name: its addresses were not asked for again


def _holding(inode: str) -> Iterator[int]:
    """The processes that have this socket open, as far as we may see."""
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if any(str(link.readlink()) == f"socket:[{inode}]" for link in (entry / "fd").iterdir()):
                    yield int(entry.name)


def _command(pid: int) -> str:
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:
        return "command unknown"
    text = " ".join(word.decode(errors="replace") for word in words)
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
