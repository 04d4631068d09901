"""test_lifecycle_status — how a daemon's entry point ends, as an exit status and at most one line"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.errors import ConfigError, DatabaseUnavailable
from shared.lifecycle import PartDied, exit_status

if TYPE_CHECKING:
    from collections.abc import Callable


def ends(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("key"), 78, "d: key\n"),
        (DatabaseUnavailable("gone"), 69, "d: gone\n"),
        (PartDied("claiming"), 70, "d: stopped because a part of it died: claiming\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_end_has_its_status(
    error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status("d", ends(error)) == status
    assert capsys.readouterr().err == line


def test_a_stop_is_status_0() -> None:
    assert exit_status("d", lambda: None) == 0
