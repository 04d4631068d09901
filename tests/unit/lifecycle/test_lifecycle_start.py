"""test_lifecycle_start — a daemon says that it has started when it heeds signals, and not before"""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING, Any

from shared import lifecycle

if TYPE_CHECKING:
    import pytest


class Hasty(logging.Handler):
    """Sends a signal as soon as it reads that the daemon has started."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number = number
        self.said: list[tuple[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        self.said.append((record.getMessage(), getattr(record, "fields", {})))
        if record.getMessage() == "daemon.started":
            os.kill(os.getpid(), self._number)


async def test_signals_are_heeded_from_daemon_started_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the default effect SIGTERM and SIGHUP would end this process."""
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    log = logging.getLogger("pillarbox")
    log.setLevel(logging.DEBUG)
    done: list[str] = []

    async def stop() -> None:
        done.append("stop")

    async def reload() -> None:
        done.append("reload")
        os.kill(os.getpid(), signal.SIGTERM)

    for number, then in ((signal.SIGTERM, ["stop"]), (signal.SIGHUP, ["reload", "stop"])):
        hasty = Hasty(number)
        log.addHandler(hasty)
        done.clear()
        try:
            await lifecycle.serve({}, "ready", stop, reload, started={"role": "test"})
        finally:
            log.removeHandler(hasty)
        assert done == then
        assert hasty.said[0] == ("daemon.started", {"role": "test"})
