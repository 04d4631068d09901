"""test_embedded_settings — the text of pillarbox.conf for machines of several sizes

Owns: proofs about the pure part of shared/postgres/embedded/settings.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.postgres.embedded.settings import Machine, render

GIB = 1024**3
LARGE = Machine(memory=16 * GIB, shm=8 * GIB)


def settings(machine: Machine, *, socket: str = "/run/p", lz4: bool = False) -> dict[str, str]:
    text = render(machine, socket=Path(socket), cluster="pillarbox-1", lz4=lz4)
    lines = [line.partition(" = ") for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, _, value in lines}


@pytest.mark.parametrize(("memory", "expected"), [(2 * GIB, "'256MB'"), (2 * GIB - 1, "'64MB'"), (GIB, "'64MB'")])
def test_a_small_machine_gets_small_buffers(memory: int, expected: str) -> None:
    assert settings(Machine(memory, GIB))["shared_buffers"] == expected


@pytest.mark.parametrize(("memory", "expected"), [(4 * GIB, "'512MB'"), (8 * GIB, "'1024MB'"), (64 * GIB, "'1024MB'")])
def test_a_larger_machine_gets_larger_buffers_up_to_a_limit(memory: int, expected: str) -> None:
    assert settings(Machine(memory, GIB))["shared_buffers"] == expected


def test_a_small_dev_shm_is_not_used() -> None:
    assert settings(Machine(GIB, 64 * 1024**2))["dynamic_shared_memory_type"] == "'sysv'"
    assert settings(Machine(GIB, 0))["dynamic_shared_memory_type"] == "'sysv'"
    assert "dynamic_shared_memory_type" not in settings(LARGE)


@pytest.mark.parametrize(("lz4", "expected"), [(True, "'lz4'"), (False, "'off'")])
def test_wal_is_compressed_only_by_lz4(lz4: bool, expected: str) -> None:  # noqa: FBT001  a parameter of the table
    assert settings(LARGE, lz4=lz4)["wal_compression"] == expected


def test_a_path_with_quotes_stays_one_path() -> None:
    assert settings(LARGE, socket="/a 'b' \"c\" \\d")["unix_socket_directories"] == "'\"/a ''b'' \"\"c\"\" \\\\d\"'"


def test_durability_settings_are_always_on() -> None:
    for machine in (LARGE, Machine(GIB // 2, 0)):
        found = settings(machine)
        assert {found[name] for name in ("fsync", "full_page_writes", "synchronous_commit")} == {"'on'"}


def test_this_machine_can_be_measured() -> None:
    found = Machine.measure()
    assert found.memory > 0
    assert found.shm >= 0
