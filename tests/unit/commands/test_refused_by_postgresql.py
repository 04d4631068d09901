"""test_refused_by_postgresql — what PostgreSQL cannot do, or refuses for want of a right, is one line of any command"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from scripts import cli
from scripts.commands import dkim

if TYPE_CHECKING:
    from pathlib import Path


def run(error: Exception, folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """A command that meets the error at a place where it expects none."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(dkim, "load_queued", fail)
    return cli.main(["dkim", "check", "--config", str(folder)])


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (psycopg.errors.DiskFull, ""),
        (psycopg.errors.OutOfMemory, ""),
        (psycopg.errors.QueryCanceled, ""),
        (psycopg.errors.LockNotAvailable, ""),
        (psycopg.errors.DeadlockDetected, ""),
        (psycopg.errors.ReadOnlySqlTransaction, ""),
        (psycopg.errors.IoError, ""),
        (psycopg.errors.AdminShutdown, ""),
        (psycopg.errors.UndefinedTable, "; run `pillarbox migrate`"),
        (psycopg.errors.InsufficientPrivilege, "; see docs/how-to/rights/grant-roles.md"),
    ],
)
def test_it_is_one_line(
    error: type[psycopg.Error],
    remedy: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(error("could not do it\nCONTEXT: in our SQL"), tmp_path, monkeypatch) == 69
    assert capsys.readouterr() == ("", f"pillarbox: could not do it{remedy}\n")


@pytest.mark.parametrize("error", [psycopg.errors.SyntaxError, psycopg.errors.NotNullViolation, ZeroDivisionError])
def test_a_fault_of_ours_keeps_its_traceback(
    error: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(error):
        run(error("ours"), tmp_path, monkeypatch)
