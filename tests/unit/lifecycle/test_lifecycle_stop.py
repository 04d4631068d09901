"""test_lifecycle_stop — a daemon ends although a part takes its cancelling for an error, and goes on"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from shared import lifecycle
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def test_a_part_that_goes_on_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setattr(lifecycle, "_AGAIN", 0.01)

    async def stubborn() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def ends() -> None:
        await asyncio.sleep(0)

    async def stop() -> None:
        pass

    serving: Awaitable[None] = lifecycle.serve({"stubborn": stubborn(), "ends": ends()}, "ready", stop)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(lifecycle.PartDied, match=r"^ends: "):
            await serving
