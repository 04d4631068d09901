"""settings — the server settings of the embedded PostgreSQL, as the text of pillarbox.conf

Owns: every setting that Pillarbox chooses for the server it starts, and their adjustment to the machine.
Guarantees: the settings that make a 250 true (fsync, full_page_writes, synchronous_commit) are on, and no TCP port
listens. `render` is pure; only `Machine.measure` looks at the machine.
See: PostgreSQL manual, chapter "Server Configuration".
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

PORT = 5432  # only part of the socket's name, but fixed: PGPORT in the environment must not change it

_MIB = 1024 * 1024
_SMALL_MEMORY = 2048 * _MIB  # below this 256 MB of shared buffers would crowd out the daemons
_SHARE = 8  # of memory; above that what is in shared buffers is seldom written before the mail is gone
_MOST_BUFFERS = 1024 * _MIB
_SMALL_SHM = 128 * _MIB  # containers get 64 MB of /dev/shm, which one parallel query can fill
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class Machine:
    """The facts that the settings depend on: `memory` and `shm` (size of /dev/shm, 0 without one) in bytes."""

    memory: int
    shm: int

    @classmethod
    def measure(cls) -> Machine:
        """This machine, or the container we are in where its limit is lower."""
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        try:
            limit = _CGROUP_LIMIT.read_text(encoding="ascii").strip()
        except OSError:
            limit = "max"
        try:
            shm = os.statvfs("/dev/shm")  # noqa: S108  the place is PostgreSQL's choice, not a file of ours
        except OSError:
            return cls(memory, 0)
        return cls(min(memory, int(limit)) if limit.isdigit() else memory, shm.f_blocks * shm.f_frsize)


def render(machine: Machine, *, socket: Path, cluster: str, lz4: bool) -> str:
    """The text of pillarbox.conf.

    `socket` is the directory of the Unix socket, `cluster` the name shown in process titles, `lz4` whether the
    server was built with it.
    """
    settings = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": '"' + str(socket).replace('"', '""') + '"',  # a list: quoted once more
        "cluster_name": cluster,
        "max_connections": "200",
        "shared_buffers": f"{_buffers(machine.memory) // _MIB}MB",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "max_wal_size": "2GB",
        "min_wal_size": "1GB",  # segments are reused: a new one is written twice
        "checkpoint_timeout": "15min",
        "wal_compression": "lz4" if lz4 else "off",
        "autovacuum_naptime": "10s",
        "jit": "off",
        "search_path": "pillarbox, public",
        "timezone": "UTC",
        "log_timezone": "UTC",
        "logging_collector": "off",
        "log_destination": "stderr",
        "log_line_prefix": "%m [%p] %q%u@%d ",
    }
    if machine.shm < _SMALL_SHM:
        settings["dynamic_shared_memory_type"] = "sysv"
    lines = [f"{name} = {_quoted(value)}" for name, value in settings.items()]
    return "\n".join(
        (
            "# Written by Pillarbox at each start. To change a setting use ALTER SYSTEM, or add a line after",
            "# the include in postgresql.conf: both win over this file.",
            *lines,
            "",
        )
    )


def _buffers(memory: int) -> int:
    """Octets of shared_buffers on a machine with so much memory."""
    return min(memory // _SHARE, _MOST_BUFFERS) if memory >= _SMALL_MEMORY else 64 * _MIB


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
