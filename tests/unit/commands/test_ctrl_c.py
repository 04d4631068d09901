"""test_ctrl_c — Ctrl-C ends `pillarbox` without a stack trace, from the start on

See: scripts/cli.py; tests/integration/queue/test_queue_interrupted.py for commands that change the queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts import cli

if TYPE_CHECKING:
    import pytest


def test_ctrl_c_while_a_verb_is_imported_is_status_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scripts.cli.importlib.import_module", interrupted)
    assert cli.main(["queue", "list"]) == 130
    assert capsys.readouterr() == ("", "")
