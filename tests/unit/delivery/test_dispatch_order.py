"""test_dispatch_order — which attempts of a claim begin at once, and which after the next claim; small claims"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, cast

from queued import dispatch
from queued.dispatch import Dispatcher
from shared.config.queued.settings import Claim
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

_PROVEN = range(100, 105)


class _Queue:
    """What a dispatcher calls; `did` has each claim's limit, and each attempt that began by its id."""

    def __init__(self, claims: Sequence[Sequence[int]], stop_after: int) -> None:
        self.did = list[str | int]()
        self.dismissed = list[int]()
        self._claims, self._stop_after = list(claims), stop_after
        self.dispatcher = cast("Dispatcher", None)
        self.busy, self.full = 0, dict[object, float]()
        self.destinations = self
        self.admission = self
        self.room, self.due = asyncio.Event(), asyncio.Event()
        self.counted = self.leaving = self.moving = self.newest = 0

    def close(self) -> None: ...

    def connection(self) -> _Queue:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def late(self, _: float) -> set[int]:
        return set()

    async def take(self, _: object, limit: int, __: object) -> list[Any]:
        self.did.append(f"claim {limit}")
        claimed = self._claims.pop(0) if self._claims else []
        self._stop_after -= 1
        if self._stop_after == 0:
            self.dispatcher.stop()
        return [SimpleNamespace(id=each, message_id=each, size=1) for each in claimed]

    async def until_due(self, _: object) -> float:
        return 0.0

    def deliveries(self, claimed: list[Any]) -> list[Any]:
        return [(each,) for each in claimed]

    def admit(self, delivery: Any, _: int) -> Any:
        place = SimpleNamespace(destination=None)
        return SimpleNamespace(delivery=delivery, place=place, unproven=None if delivery[0].id in _PROVEN else 1)

    def may_begin(self, _: object) -> bool:
        return True

    async def reserve(self, *_: object) -> bool:
        return True

    async def fetch(self, _: object) -> dict[int, None]:
        return {}

    def begin(self, admitted: Any, _: object) -> None:
        self.did.append(admitted.delivery[0].id)

    async def dismiss(self, admitted: Any) -> None:
        self.dismissed += [each.delivery[0].id for each in admitted]

    async def run(self) -> None:
        """Park nothing."""

    async def drained(self) -> None: ...

    parked = drained


class _Flight(_Queue):
    """The same, with what is in flight."""

    def take(self, _: object, *__: object) -> Any:
        return None


async def _ran(
    claims: Sequence[Sequence[int]], stop_after: int, made: type[_Queue] = _Queue, counted: int = 0
) -> _Queue:
    queue, flight = made(claims, stop_after), _Flight([], 0)
    flight.counted = counted
    settings = Claim.model_validate({"batch": 100, "inflight": 1000})
    given = cast("Any", queue)
    queue.dispatcher = Dispatcher(given, given, cast("Any", flight), given, given, given, settings)
    running = asyncio.create_task(queue.dispatcher.run())
    await queue.dispatcher.drained()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return queue


async def test_known_destinations_come_first_and_others_by_portions_between_smaller_claims() -> None:
    flood = list(range(95))
    queue = await _ran([[*flood, *_PROVEN], [], []], 3)
    assert queue.did[:6] == ["claim 100", *_PROVEN]
    second = queue.did.index("claim 25")
    began = queue.did[6:second]
    assert began == [*range(10), *range(94, 84, -1)], "half the oldest, half the newest"
    assert sorted(each for each in queue.did if isinstance(each, int)) == [*flood, *_PROVEN]


async def test_attempts_not_begun_are_given_back_when_stopping() -> None:
    queue = await _ran([list(range(60))], 1)
    assert not [each for each in queue.did if isinstance(each, int)]
    assert sorted(queue.dismissed) == list(range(60))


async def test_what_waits_for_room_for_its_body_is_given_back_when_stopping() -> None:
    class Full(_Queue):
        async def reserve(self, *_: object) -> bool:
            self.dispatcher.stop()
            await asyncio.sleep(0)
            return False

        def relieve(self) -> None: ...

    async with asyncio.timeout(PATIENCE):
        queue = await _ran([list(_PROVEN)], 9, Full)
    assert not [each for each in queue.did if isinstance(each, int)]
    assert queue.dismissed == list(_PROVEN)


async def test_a_worker_without_room_for_long_claims_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    class Starved(_Queue):
        def relieve(self) -> None:
            self.did.append("relieve")

    monkeypatch.setattr(dispatch, "_STARVED", 0.0)
    async with asyncio.timeout(PATIENCE):
        queue = await _ran([[100]], 1, Starved, counted=990)
    assert queue.did[:2] == ["relieve", "claim 10"]


async def test_where_mail_comes_in_moments_the_next_due_time_is_not_asked_for() -> None:
    class Flowing(_Queue):
        async def take(self, connection: object, limit: int, besides: object) -> list[Any]:
            asyncio.get_running_loop().call_later(0.01, self.dispatcher.due.set)
            return await super().take(connection, limit, besides)

        async def until_due(self, _: object) -> float:
            raise AssertionError("the next due time was asked for")

    async with asyncio.timeout(PATIENCE):
        queue = await _ran([[100], [101], [102]], 3, Flowing)
    assert queue.did.count("claim 100") == 3
