"""watchdog — follows the progress of attempts in their conversations, and ends those that get nowhere

Owns: Progress, the current attempt's Progress, and the watch over all of them.
Guarantees: a connection opened for an attempt by a task of its own counts for that attempt. An attempt that has not
    moved for its limit is cut off through its lease, at that moment, and so is one that as a whole takes longer than it
    may, however often it moves; one timer serves all, and a step costs no more than reading the clock. Where others
    wait for room in the share of unproven destinations, the one of them that has not moved for longest is cut off
    before its content, if that is STANDING seconds or it has dripped; where most of them stand still, or are
    first tries that drip, a MOMENT is enough for the first try of a recipient, and STANDING for all of it. Where the
    worker has had no room to claim anything, all are that have not
    moved for STANDING. One whose peer has content of ours is not cut off for others: its `stands` is called.
See: RFC 1047 (why it matters whether the final dot was out); docs/explanation/admission.md.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from operator import itemgetter
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal

from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from queued.values import Lease

STANDING: Final = 10.0  # seconds; what Postfix lets smtpd wait for a client under stress
MOMENT: Final = 3.0  # seconds; most hosts have said something by then
_MOST: Final = 1 / 2  # of the attempts at unproven destinations; so the others are those that begin or move
_LONG_STANDING: Final = 30.0  # seconds in its content, where only the share of unproven destinations is full
_DRIPPING: Final = 60.0  # seconds, however often it moved: replies that come singly end no attempt of their own accord
_PAUSE: Final = 1.0  # seconds between two looks for attempts stalled in their content
_LOOK: Final = 0.05  # seconds until another look for room, where there was none
_CONTENT: Final = frozenset({"body", "dot"})  # the phases in which the peer has content of ours


class AttemptStep:
    """The step an attempt has reached; None before a host was spoken to. stuck: why it was cut off, else ""."""

    __slots__ = (
        "begun",
        "ends",
        "lease",
        "limit",
        "moved",
        "phase",
        "seconds",
        "stands",
        "starved",
        "stuck",
        "unproven",
        "whole",
        "yields",
    )

    def __init__(
        self,
        lease: Lease,
        limit: float,
        whole: float,
        *,
        unproven: UnprovenTry = None,
        stands: Callable[[], None] = lambda: None,
        yields: Callable[[], None] = lambda: None,
    ) -> None:
        """limit: seconds without a step after which it is stuck. whole: seconds for all steps. Then its lease is cut.

        unproven: which try it is, if its destination has not been reached of late. stands: called while it stands
        still where its peer has content of ours, and others wait for room. yields: called when it is cut off for them.
        """
        self.lease = lease
        self.stands = stands
        self.yields = yields
        self.limit = limit
        self.whole = whole
        self.unproven = unproven
        self.phase: Phase | None = None
        self.begun = self.moved = monotonic()
        self.ends = self.begun + whole
        self.stuck = ""
        self.starved = False  # so that other mail could be claimed
        self.seconds = 0.0  # of the limit that it came to

    @property
    def uncertain(self) -> bool:
        """Whether the final dot is out: the peer may have taken the message."""
        return self.phase == "dot"

    @property
    def due(self) -> float:
        """When it is to be cut off, in monotonic seconds."""
        return min(self.moved + self.limit, self.ends)

    def cut(self, why: str, seconds: float) -> None:
        """End it now."""
        self.stuck, self.seconds = why, seconds
        self.lease.cut()


_CURRENT: ContextVar[AttemptStep | None] = ContextVar("progress", default=None)


def reached(phase: Phase) -> None:
    """The attempt this code runs for, if any, waits for this now."""
    progress = _CURRENT.get()
    if progress is not None:
        progress.phase = phase
        progress.moved = monotonic()


def latest() -> Phase | None:
    """The last wait of the attempt that this code runs for."""
    progress = _CURRENT.get()
    return None if progress is None else progress.phase


def stuck() -> bool:
    """Whether the attempt this code runs for was cut off because it got nowhere."""
    progress = _CURRENT.get()
    return progress is not None and bool(progress.stuck)


class Watch:
    """The attempts of a worker that are under way."""

    def __init__(self) -> None:
        self._watched: set[AttemptStep] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look_at = 0.0  # monotonic seconds
        self._room_at = {True: 0.0, False: 0.0}  # when to look again, with `again` and without
        self._giving: dict[bool, list[AttemptStep]] = {True: [], False: []}  # found at the last look, the longest last
        self._aside_at = 0.0  # when to look again for attempts stalled in their content

    def begin(self, progress: AttemptStep) -> None:
        """The task that runs now is this attempt, and what it begins belongs to it."""
        _CURRENT.set(progress)
        self._watched.add(progress)
        if self._timer is None or progress.due < self._look_at:
            self._wait(progress.due - monotonic())

    def end(self, progress: AttemptStep) -> None:
        """It is over."""
        self._watched.discard(progress)

    def make_room(self, now: float, *, again: bool) -> bool:
        """Cut off a stalled attempt at an unproven destination; whether there was one.

        again: only one whose recipients were tried before.
        """
        if now >= self._aside_at:
            self._aside_at = now + _PAUSE
            self._report(now - _LONG_STANDING, {each for each in self._watched if each.unproven})
        if now >= self._room_at[again]:
            self._room_at[again] = now + _LOOK
            self._giving[again] = give_way([each for each in self._watched if each.unproven], now, again=again)
        while self._giving[again]:
            longest = self._giving[again].pop()
            seconds = now - longest.moved
            if longest in self._watched and longest.phase not in _CONTENT and seconds > _LOOK:
                self._watched.discard(longest)
                text = f"no progress for {how_many(round(seconds), 'second')}, and others wait for their turn,"
                longest.cut(text, seconds)
                longest.yields()
                return True
        return False

    def relieve(self, now: float) -> None:
        """Nothing can be claimed: cut off every attempt stalled before its content, and name the others."""
        for each in [each for each in self._watched if each.phase not in _CONTENT]:
            if now >= min(each.moved + STANDING, each.begun + _DRIPPING):
                self._watched.discard(each)
                seconds = now - each.moved
                each.starved = True
                each.cut(
                    f"no progress for {how_many(round(seconds), 'second')}, and no other mail can be claimed,", seconds
                )
        self._report(now - STANDING, self._watched)

    def _report(self, since: float, among: set[AttemptStep]) -> None:
        """Name those among them whose peer has content of ours, and that have stood still since then or drip."""
        dripping = monotonic() - _DRIPPING
        for each in [each for each in among if each.phase in _CONTENT]:
            if each.moved <= since or each.begun <= dripping:
                each.stands()

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._look_at = monotonic() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = monotonic()
        for progress in [each for each in self._watched if each.due <= now]:
            self._watched.discard(progress)
            if progress.ends <= now:
                progress.cut(f"not done after {how_many(round(progress.whole), 'second')}", progress.whole)
            else:
                progress.cut(f"no progress for {how_many(round(progress.limit), 'second')}", progress.limit)
        if self._watched:
            self._wait(min(each.due for each in self._watched) - now)


def give_way(unproven: Collection[AttemptStep], now: float, *, again: bool) -> list[AttemptStep]:
    """Those of these attempts that may be cut off so that others can begin: the one to be cut off first comes last.

    again: only those whose recipients were tried before, for others of that kind. Such an attempt always has STANDING.
    """
    standing = sum(_stands(each, now) for each in unproven if each.phase not in _CONTENT)
    hurried, whole = (MOMENT, STANDING) if standing > _MOST * len(unproven) else (STANDING, _DRIPPING)
    over = list[tuple[float, AttemptStep]]()
    for each in unproven:
        if each.phase in _CONTENT or (again and each.unproven == "first"):
            continue
        patience = (hurried, whole) if each.unproven == "first" else (STANDING, _DRIPPING)
        since = now - min(each.moved + patience[0], each.begun + patience[1])
        if since >= 0:
            over.append((since, each))
    return [each for _, each in sorted(over, key=itemgetter(0))]


def _stands(each: AttemptStep, now: float) -> bool:
    """Whether it is stalled, or is a first try that takes long although it moves."""
    return now - each.moved >= MOMENT or (each.unproven == "first" and now - each.begun >= STANDING)


type Phase = Literal["connect", "greeting", "helo", "starttls", "auth", "mail", "rcpt", "data", "body", "dot"]
type UnprovenTry = Literal["first", "again"] | None
