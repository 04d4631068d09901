"""test_careful_dns — a question that is cancelled leaves no socket open"""

from __future__ import annotations

import asyncio
import socket
import warnings

import pytest

from queued.routing.careful_dns import CarefulBackend
from shared import event_loop


async def _cancelled(turns: int) -> None:
    """A question that ends this many turns of the event loop after it began to make its socket."""
    making = asyncio.create_task(CarefulBackend().make_socket(socket.AF_INET, socket.SOCK_DGRAM))
    for _ in range(turns):
        await asyncio.sleep(0)
    assert not making.done()
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    await asyncio.sleep(0)  # uvloop closes at its next turn


def test_a_question_cancelled_while_its_socket_is_made_leaves_none() -> None:
    for turns in range(3):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with asyncio.Runner(loop_factory=event_loop.new) as runner:
                runner.run(_cancelled(turns))
        assert said == []  # the loop tells of what was open when it closed
