"""test_embedded_account — a user id without an account, as some containers have it, learns why it gets no database"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from shared.errors import DatabaseUnavailable
from shared.postgres.embedded.account import choose_account

if TYPE_CHECKING:
    from pathlib import Path

_WITHOUT_ACCOUNT = 2**31 - 9


def test_a_user_id_without_an_account_gets_no_new_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: _WITHOUT_ACCOUNT)
    with pytest.raises(DatabaseUnavailable, match=rf"user id {_WITHOUT_ACCOUNT}, .*; allowed: .*environment\.database"):
        choose_account(tmp_path / "postgres")


def test_it_runs_a_database_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: _WITHOUT_ACCOUNT)
    assert choose_account(tmp_path) is None
