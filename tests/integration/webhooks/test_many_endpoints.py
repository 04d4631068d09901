"""test_many_endpoints — endpoints that read history together get what each would get alone

Owns: proofs about queued/webhooks/history.py.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from queued.webhooks import history as reading
from queued.webhooks.history import History
from tests.fixtures.database.asked import asking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.web.hooks import Hooks
    from tests.fixtures.queue.hooked import Hook

    type Make = Callable[[], Awaitable[Hooks]]

MINUTE = timedelta(minutes=1)


def held(taker: Hooks) -> list[int]:
    return [event["data"]["id"] for event in taker.taken]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("most", [3, 256])
async def test_each_gets_every_event_once_however_their_steps_and_commits_come(
    factory: Factory, hooked: Hook, hooks: Make, monkeypatch: pytest.MonkeyPatch, seed: int, most: int
) -> None:
    monkeypatch.setattr(reading, "_MOST_SNAPSHOTS", most)
    monkeypatch.setattr(reading, "_FRESH", 0.02)
    random, history, takers = Random(seed), History(), [await hooks() for _ in range(5)]
    every = [
        hooked(taker.url, f"app{number}", history, events=["held"], batch=1 + number % 2)
        for number, taker in enumerate(takers)
    ]
    rows = factory.rows(150)
    waiting, made = list(rows), list[int]()
    with ExitStack() as stack:
        late = list[Any]()
        while waiting:
            match random.randrange(12):
                case 0 if len(late) < 3:
                    session = stack.enter_context(factory.another())
                    session.execute("UPDATE pillarbox.queue SET status = 'HOLD' WHERE id = %s", [waiting[-1]])
                    made.append(waiting.pop())
                    late.append(session)
                case 1 if late:
                    late.pop(random.randrange(len(late))).commit()
                case 2 | 3 | 4 | 5:
                    together = [waiting.pop() for _ in range(min(len(waiting), random.choice((1, 1, 7))))]
                    factory.move(together, "HOLD")
                    made += together
                case 6:
                    history.forget()
                case _:
                    await random.choice(every).endpoint.step()
        for session in late:
            session.commit()
    for each, taker in zip(every, takers, strict=True):
        await eventually_all(each, taker, len(made))
        assert sorted(held(taker)) == sorted(made)


async def eventually_all(each: Any, taker: Hooks, wanted: int) -> None:
    """Step until this many events have come, and once more."""
    for _ in range(200):
        await each.after(MINUTE)
        if len(taker.taken) >= wanted:
            break
    await each.after(MINUTE)


async def test_history_is_read_once_for_all(
    factory: Factory, hooked: Hook, hooks: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    taker, history = await hooks(), History()
    every = [hooked(taker.url, f"app{number}", history, events=["held"]) for number in range(30)]
    for each in every:
        await each.settled()
    monkeypatch.setattr(reading, "_FRESH", 3600.0)
    history._present -= 7200.0
    asked = asking(monkeypatch)
    factory.move(factory.rows(10), "HOLD")
    for each in every:
        await each.settled()
    assert len(taker.taken) == 30 * 10
    assert asked.count("webhook_events") <= 3
    assert asked.count("webhook_next") <= 3


async def test_after_a_crash_the_noted_position_holds(factory: Factory, hooked: Hook, hooks: Make) -> None:
    taker = await hooks()
    hook = hooked(taker.url, events=["held"])
    await hook.settled()
    feed = hook.endpoint._feed
    assert feed is not None
    # As it is where transactions were lost that had not reached the disk.
    feed._position = replace(feed._position, snapshot="999999999:999999999:")
    row = factory.row(status="HOLD")
    for _ in range(2):
        await hook.settled()
    assert held(taker) == [row]
