"""endpoint — brings events to one endpoint, portion after portion

Owns: the step of one endpoint: read a portion, send it, note how far it has come, or that it failed.
Guarantees: an event is sent at least once: the position moves only past events that the endpoint has taken. Events of a
    recipient are sent one after the other. No transaction and no connection to PostgreSQL is held while a request is
    under way. Requests under way, their size and their time are bounded. What another process has noted meanwhile is
    not written over.
Raises: psycopg's exceptions.
See: sql/README.md, "Webhooks"; queued/webhooks/answer.py.
"""

from __future__ import annotations

import asyncio
import hashlib
from datetime import UTC, datetime, timedelta
from itertools import groupby
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.webhooks import feed, signature
from queued.webhooks.answer import PATIENCE, TAKEN, Answer, next_try
from queued.webhooks.feed import Feed, Portion
from queued.webhooks.history import Event, History, ServerChangedError
from shared.config.condition.of_event import condition, fits
from shared.failure_points import reach
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from queued.webhooks.post import Post

_POLL: Final = 1.0  # seconds between two looks for what is new
_NOTE: Final = timedelta(minutes=1)  # how far behind the noted position may stay while there is nothing to send
_AT_ONCE: Final = 8  # requests of one event each
_OCTETS: Final = 262_144  # of events in one request, unless one alone has more
_PORTION: Final = 64  # events read and noted at once, or _BATCHES
_BATCHES: Final = 4
_SECRETS: Final = 60.0  # seconds for which a secret's file is not read again


class Target(NamedTuple):
    """An endpoint as the table webhooks has it."""

    name: str
    url: str
    events: tuple[str, ...]
    condition: str
    secrets: tuple[str, ...]
    private: bool
    batch: int


class Endpoint:
    """One endpoint that gets events."""

    def __init__(
        self,
        pool: database.Pool,
        target: Target,
        post: Post,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        random: Random | None = None,
        *,
        history: History | None = None,
    ) -> None:
        """history: what reads for the other endpoints, too."""
        self._pool, self._target, self._post, self._clock = pool, target, post, clock
        self._history = history or History()
        self._random = random or Random()
        self._condition = condition(target.condition)
        self._keys: list[bytes] = []
        self._keys_at = -_SECRETS
        self._feed: Feed | None = None
        self._portion: Portion | None = None
        self._left: list[Event] = []  # of the portion
        self._taken = 0  # events, since the position was noted
        self._xact = self._tries = 0
        self._server: datetime | None = None  # whose numbers these are
        self._due: datetime | None = None
        self._noted = datetime.min.replace(tzinfo=UTC)
        self._moved = False

    def know(self, xact: int) -> None:
        """The transaction that last noted the position: a later one than ours means that another has moved it."""
        self._moved = xact > self._xact

    async def step(self) -> float:
        """One portion, or one failure; the seconds until the next step."""
        reading = None if self._moved else self._feed
        reading = reading or await self._begin()
        if reading is None:
            return _POLL
        now = self._clock()
        if self._due is not None and now < self._due:
            return min((self._due - now).total_seconds(), _POLL)
        try:
            portion = self._portion or await self._read(reading)
        except ServerChangedError:
            self._feed = None
            return _POLL
        started, before = monotonic(), len(self._left)
        answer = await self._send()
        taken = before - len(self._left)
        self._taken += taken
        if taken:
            events.emit("webhook.sent", webhook=self._target.name, events=taken, seconds=monotonic() - started)
        if answer is not TAKEN:
            await self._failed(answer)
            return 0.0
        return await self._advance(portion)

    async def close(self) -> None:
        """Close the connections to the endpoint."""
        await self._post.close()

    async def _begin(self) -> Feed | None:
        async with self._pool.connection() as connection:
            found = await feed.find(connection, self._target.name)
        if found is None:
            return None
        position, row = found
        self._feed = Feed(self._history, self._target.events, position, _portion(self._target.batch))
        self._portion, self._left, self._taken = None, [], 0
        self._xact, self._tries, self._due, self._moved = row.xact, row.tries, row.due, False
        self._server = position.server
        return self._feed

    async def _read(self, reading: Feed) -> Portion:
        async with self._pool.connection() as connection:
            self._portion = portion = await reading.next(connection)
            self._left = portion.events
        if self._condition is not None:
            now = self._clock()
            self._left = [e for e in self._left if fits(self._condition, e.data, now)]
        return portion

    async def _send(self) -> Answer:
        """Send what is left of the portion, until one request is not taken."""
        if not self._left:
            return TAKEN
        try:
            keys = self._secrets()
        except signature.SecretRefused as refused:
            return Answer(str(refused))
        if self._target.batch > 1:
            for batch in _batches(self._left, self._target.batch):
                name, body = _together(batch, self._clock())
                answer = await self._post.send(name, body, keys, self._clock)
                if answer is not TAKEN:
                    return answer
                self._left = self._left[len(batch) :]
                reach("webhook.taken")
            return TAKEN
        return await self._send_each(keys)

    async def _send_each(self, keys: Sequence[bytes]) -> Answer:
        """Each event as a request; several at once, but one of each recipient."""
        room, failures, taken = asyncio.Semaphore(_AT_ONCE), list[Answer](), set[str]()

        async def one_after_the_other(of_one: list[Event]) -> None:
            for event in of_one:
                async with room:
                    answer = (
                        failures[0]
                        if failures
                        else await self._post.send(event.id, event.text.encode(), keys, self._clock)
                    )
                if answer is not TAKEN:
                    failures.append(answer)
                    return
                taken.add(event.id)
                reach("webhook.taken")

        def whose(event: Event) -> int:
            return event.recipient

        try:
            async with asyncio.TaskGroup() as group:
                for _, of_one in groupby(sorted(self._left, key=whose), key=whose):
                    group.create_task(one_after_the_other(list(of_one)))
        finally:
            self._left = [event for event in self._left if event.id not in taken]
        return failures[0] if failures else TAKEN

    async def _advance(self, portion: Portion) -> float:
        """Note the position behind the portion; the seconds until the next step."""
        now = self._clock()
        self._portion = None
        self._tries, self._due = 0, None
        if self._taken or portion.behind.goal or now - self._noted >= _NOTE:
            async with self._pool.connection() as connection:
                noted = await database.fetch(
                    connection,
                    "webhook_advance",
                    name=self._target.name,
                    xact=self._xact,
                    sent=self._taken,
                    now=now,
                    **portion.behind.values,
                )
            self._noted, self._taken = now, 0
            self._know(noted)
        return _POLL if portion.last else 0.0

    async def _failed(self, answer: Answer) -> None:
        """Note a failure, and pause or disable an endpoint that has failed for too long or is gone."""
        now, name = self._clock(), self._target.name
        due = now + next_try(self._tries + 1, answer, self._random)
        async with self._pool.connection() as connection:
            noted = await database.fetch(
                connection,
                "webhook_failed",
                name=name,
                xact=self._xact,
                server=self._server,
                now=now,
                due=due,
                error=answer.error,
            )
            if not noted:
                self._know(noted)
                return
            self._tries, self._due = noted[0].tries, due
            self._know(noted)
            wait = (due - now).total_seconds()
            events.emit("webhook.failed", webhook=name, error=answer.error, tries=self._tries, seconds=wait)
            since = now - noted[0].failing
            if answer.gone:
                await self._stop(connection, "disabled", "the endpoint answered 410 Gone")
            elif since >= PATIENCE:
                await self._stop(
                    connection, "paused", f"failed since {noted[0].failing:%Y-%m-%d %H:%M}: {answer.error}"
                )

    async def _stop(self, connection: database.Connection, state: str, reason: str) -> None:
        if await database.fetch(connection, "webhook_stop", name=self._target.name, state=state, reason=reason):
            events.emit(f"webhook.{state}", webhook=self._target.name, reason=reason)

    def _know(self, noted: list[database.Row]) -> None:
        """Go on from what was noted, or read the position again where another has moved it."""
        if noted:
            self._xact = noted[0].xact
        else:
            self._feed = None

    def _secrets(self) -> list[bytes]:
        if monotonic() - self._keys_at >= _SECRETS:
            self._keys = [signature.key_of(each) for each in self._target.secrets]
            self._keys_at = monotonic()
        return self._keys


def _portion(batch: int) -> int:
    """How many events are read at once: whole batches."""
    return _PORTION if batch == 1 else batch * max(_BATCHES, -(-_PORTION // batch))


def _batches(left: list[Event], most: int) -> Iterator[list[Event]]:
    batch, octets = list[Event](), 0
    for event in left:
        if batch and (len(batch) >= most or octets + len(event.text) > _OCTETS):
            yield batch
            batch, octets = [], 0
        batch.append(event)
        octets += len(event.text)
    if batch:
        yield batch


def _together(batch: list[Event], now: datetime) -> tuple[str, bytes]:
    """The name and the body of a request with several events; the name says which they are."""
    name = f"evt_batch_{hashlib.sha256(' '.join(event.id for event in batch).encode()).hexdigest()[:32]}"
    joined = ",".join(event.text for event in batch)
    body = f'{{"id":"{name}","type":"batch","timestamp":"{now:%Y-%m-%dT%H:%M:%S.%fZ}","data":[{joined}]}}'
    return name, body.encode()
