"""test_port_holder — the process that has a port in use

See: shared/port_holder.py.
"""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

import pytest

from shared import port_holder

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["127.0.0.1", "0.0.0.0", "::1"])  # noqa: S104 - for a moment
def listening(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """An address where this process listens."""
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.socket(family) as door:
        door.bind((request.param, 0))
        door.listen()
        yield request.param, door.getsockname()[1]


def test_the_process_on_the_port_is_named_with_its_command(listening: tuple[str, int]) -> None:
    address, port = listening
    reason = port_holder.why(OSError(errno.EADDRINUSE, "Address already in use"), address, port)
    assert reason.startswith(f"Address already in use by pid {os.getpid()} (")
    assert "python" in reason


def test_only_a_conflicting_listener_is_named(listening: tuple[str, int]) -> None:
    address, port = listening
    assert (port_holder.holder("127.0.0.9", port) != "") is (address == "0.0.0.0")  # noqa: S104 - only compared
    assert port_holder.holder("localhost", port) != "", "a name may lead there"
    assert port_holder.why(PermissionError(errno.EACCES, "Permission denied"), address, port) == "Permission denied"


def test_a_free_port_names_no_process() -> None:
    assert port_holder.holder("127.0.0.1", 1) == ""
