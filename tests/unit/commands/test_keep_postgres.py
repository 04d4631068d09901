"""test_keep_postgres — one `pillarbox up` for each var, and how often it starts PostgreSQL again

See: scripts/up/only_one.py, scripts/up/keep_postgres.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from scripts.up import keep_postgres
from scripts.up.only_one import InUse, only_one, who_has
from shared.errors import DatabaseUnavailable
from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.heard import Heard


def test_a_second_up_names_the_process_that_has_the_folder(tmp_path: Path) -> None:
    var = tmp_path / "var"
    with (
        only_one(var),
        pytest.raises(InUse, match=rf"already runs over .*var \(pid {os.getpid()}, since 20"),
        only_one(var),
    ):
        pass
    with only_one(var):
        assert str(who_has(var)).startswith(f"pid {os.getpid()}, since 20")
    assert who_has(var) is None
    assert who_has(tmp_path / "nowhere") is None


async def test_a_server_that_keeps_dying_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: Heard
) -> None:
    starts = []

    def fails(var: Path) -> str:
        starts.append(var)
        raise DatabaseUnavailable("no room")

    monkeypatch.setattr(embedded, "status", lambda _: None)
    monkeypatch.setattr(embedded, "ensure_running", fails)
    monkeypatch.setattr(keep_postgres, "_LOOK", 0.0)
    monkeypatch.setattr(keep_postgres, "_PAUSES", (0.0, 0.0))
    with pytest.raises(DatabaseUnavailable, match="died 3 times in a row: no room"):
        await keep_postgres.keep_up(tmp_path)
    assert len(starts) == 2
    assert [died["error"] and str(died["error"]) for died in heard.all("child.died")] == [None, "no room"]
