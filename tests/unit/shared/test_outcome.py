"""test_outcome — several callers wait for one task: cancelling one stops only that one, and the log gets no error"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.outcome import outcome_of


async def test_a_cancelled_caller_ends_neither_the_task_nor_the_waiting_of_others() -> None:
    go = asyncio.Event()
    task = asyncio.create_task(_answer(go))
    first, second = asyncio.create_task(outcome_of(task)), asyncio.create_task(outcome_of(task))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    go.set()
    assert await second == "answer"
    assert await outcome_of(task) == "answer"


async def test_a_failure_after_the_caller_was_cancelled_is_no_error_of_the_program() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    go = asyncio.Event()
    task = asyncio.create_task(_fail(go))
    caller = asyncio.create_task(outcome_of(task))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    go.set()
    with pytest.raises(OSError, match="gone"):
        await outcome_of(task)
    assert reported == []


async def test_a_task_that_was_cancelled_cancels_its_callers() -> None:
    task = asyncio.create_task(_answer(asyncio.Event()))
    caller = asyncio.create_task(outcome_of(task))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def _answer(go: asyncio.Event) -> str:
    await go.wait()
    return "answer"


async def _fail(go: asyncio.Event) -> None:
    await go.wait()
    raise OSError("gone")
