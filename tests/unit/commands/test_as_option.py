"""test_as_option — `--as` holds for its own command only

Owns: a proof about scripts/cli.py. See: tests/integration/login/test_acting.py for what `--as` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import cli
from scripts.options import AS

if TYPE_CHECKING:
    from pathlib import Path


def test_a_command_that_fails_leaves_no_principal_to_the_next_in_the_same_process(tmp_path: Path) -> None:
    assert cli.main(["queue", "list", "--as", "ann", "--config", str(tmp_path)]) != 0
    assert AS.get() is None
