"""sessions — our address and name towards each host of one attempt

Owns: choosing a source address and the name that goes with it, asking the pacing policies that name site or source, the
    interval between new connections, and the limit of a host that all workers share.
Guarantees: a source fits the host's family, has allowance left and is allowed by every policy; else another one is
    taken, in an order drawn by weight. Nothing is taken for a host that is not tried, and a turn is given back when it
    did not come to a transaction. Without `sources` the system chooses the address, and only the policies are asked.
Raises: ConversationError for a host that cannot be spoken to from here; ParkedError when a connection may not be
    opened.
See: queued/routing/source.py for the decisions; queued/routing/warmup.py for the count;
    docs/how-to/deliver/several-source-addresses.md
"""

from __future__ import annotations

import asyncio
from datetime import UTC
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.pacing.pace_host import HostLimit
from queued.routing.source import allowance, draw, family, fits, until_tomorrow
from queued.smtp.pool import SessionWanted
from queued.smtp.transaction import ConversationError, Fault
from queued.waiting.deferral import Deferral, ParkedError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import datetime

    from queued.pacing.pace import Fields, Paces, Turn
    from queued.pacing.pace_host import Slot
    from queued.routing.route import Hop
    from queued.routing.warmup import Warmups
    from queued.smtp.auth import Logins
    from queued.smtp.pool import Rest
    from queued.tls.demanded import TlsWanted
    from shared.config.queued.source import Source
    from shared.config.queued.transport import Transport

_RANDOM: Final = Random()
_LONGEST_GATE: Final = 5.0  # seconds that a connection is waited for in the attempt; for longer its mail is parked
_UNCOUNTED: Final = 30.0  # seconds until PostgreSQL is asked again for a part of an allowance


class SourceSettings(NamedTuple):
    """The parts that all attempts of a transport share. hostname: our name where the source has none.

    logins: as whom we log in, by host and port. shared: how many connections all workers together may have to one
    host; None where each worker counts for itself.
    """

    hostname: str
    sources: Sequence[Source]
    paces: Paces
    warmups: Warmups
    logins: Logins
    shared: int | None = None

    @staticmethod
    def of(
        settings: Transport, hostname: str, paces: Paces, warmups: Warmups, logins: Logins | None = None
    ) -> SourceSettings:
        """The voice of a transport on a host of this name."""
        shared = settings.concurrency if settings.concurrencyper == "host" else None
        return SourceSettings(settings.hostname or hostname, settings.sources, paces, warmups, logins or {}, shared)


class Chosen(NamedTuple):
    """Leave to speak to hosts of one family. source: None for the system's choice."""

    source: Source | None
    turn: Turn
    counted: bool  # against the day's allowance


class SourceChooser:
    """One attempt. waits: why it could not speak, if waiting helps. asked: hosts it spoke to, or tried."""

    def __init__(self, voice: SourceSettings, fields: Fields, now: datetime) -> None:
        """`now`: by PostgreSQL's clock, whose day counts for all workers; it is not looked at without sources."""
        self.waits: list[Deferral] = []
        self.asked: set[Hop] = set()
        self._voice = voice
        self._fields = fields
        self._now = now.astimezone(UTC) if voice.sources else now
        self._sources = draw(voice.sources, _RANDOM) if voice.sources else ()
        self._chosen: dict[int | None, Chosen | None] = {}
        self._last: Chosen | None = None

    @property
    def spoke(self) -> bool:
        """Whether there was a host that could be spoken to."""
        return self._last is not None

    @property
    def source(self) -> str | None:
        """The address we spoke from last; None when the system chose it."""
        return str(self._last.source.address) if self._last and self._last.source else None

    async def prepare(self, hops: Sequence[Hop]) -> Sequence[Hop]:
        """The hosts that some source fits, all when none does; allowances are at hand then."""
        if not self._sources:
            return hops
        families = {family(hop.host) for hop in hops}
        fitting = {version for version in families if any(fits(source, version) for source in self._sources)}
        for source in self._sources:
            most = self._most(source)
            if most and any(fits(source, version) for version in fitting):
                await self._voice.warmups.refill(str(source.address), self._now.date(), most)
        return [hop for hop in hops if family(hop.host) in fitting] or hops

    def session(self, hop: Hop, tls: TlsWanted) -> SessionWanted:
        """How to speak to this host; ConversationError when it cannot be from here, or not now."""
        version = family(hop.host) if self._sources else None
        if version not in self._chosen:
            self._chosen[version] = self._choose(version)
        chosen = self._chosen[version]
        if chosen is None:
            self.asked.discard(hop)
            reason = self.waits[-1].reason if self.waits else f"no source address for IPv{version}"
            raise ConversationError(Fault("connect", "connect", reason))
        self._last = chosen
        self.asked.add(hop)
        source = chosen.source
        return SessionWanted(
            hostname=(source.hostname if source else None) or self._voice.hostname,
            source=str(source.address) if source else None,
            tls=tls,
            login=self._voice.logins.get((hop.host, hop.port)),
            connect_gate=self._gate(chosen, hop) if self._voice.paces.by_connection or self._voice.shared else None,
        )

    def done(self, *, used: bool) -> None:
        """The attempt is over; `used`: the last host was asked about the message."""
        for chosen in self._chosen.values():
            if chosen is None:
                continue
            spent = used and chosen is self._last
            chosen.turn.done(unused=not spent)
            if chosen.counted and chosen.source and not spent:
                self._voice.warmups.give_back(str(chosen.source.address), self._now.date())
        self._chosen.clear()

    def _choose(self, version: int | None) -> Chosen | None:
        if not self._sources:
            return self._ask(None)
        usable = (source for source in self._sources if fits(source, version))
        return next(filter(None, map(self._ask, usable)), None)

    def _ask(self, source: Source | None) -> Chosen | None:
        """Leave to speak from this source; None, with a wait, when there is none now."""
        fields, most = self._fields, None
        if source is not None:
            fields = fields._replace(source=str(source.address))
            most = self._most(source)
            if most is not None and (wait := self._short(source, most)) is not None:
                self.waits.append(wait)
                return None
        turn = self._voice.paces.ask_host(fields)
        if isinstance(turn, Deferral):
            self.waits.append(turn)
            return None
        if source is not None and most is not None:
            self._voice.warmups.take(str(source.address), self._now.date())
        return Chosen(source, turn, most is not None)

    def _short(self, source: Source, most: int) -> Deferral | None:
        """Why nothing may leave from this source under warm-up; None when something may."""
        address, day = str(source.address), self._now.date()
        warmups = self._voice.warmups
        if warmups.used_up(address, day, most):
            text = f"{address} has sent its {how_many(most, 'message')} of {day} (warm-up)"
            return Deferral(until_tomorrow(self._now), text)
        if not warmups.at_hand(address, day):
            return Deferral(_UNCOUNTED, f"what {address} may still send on {day} is not known (warm-up)")
        return None

    def _most(self, source: Source) -> int | None:
        return allowance(source, self._now.date())

    def _gate(self, chosen: Chosen, hop: Hop) -> Callable[[Rest], Awaitable[Slot | None]]:
        """What is awaited before a new connection is opened from this source; raises ParkedError."""
        fields, most = self._fields, self._voice.shared
        limit = HostLimit(fields.transport, f"{hop.name or hop.host}:{hop.port}", most) if most else None
        if chosen.source is not None:
            fields = fields._replace(source=str(chosen.source.address))

        async def gate(rest: Rest) -> Slot | None:
            latest = self._voice.paces.clock() + _LONGEST_GATE
            slot = await self._slot(limit, rest, latest) if limit is not None else None
            if slot is None and limit is not None:
                return None
            try:
                await self._interval(fields, latest)
            except BaseException:
                if slot is not None:
                    slot.done()
                raise
            return slot

        return gate

    async def _slot(self, limit: HostLimit, rest: Rest, latest: float) -> Slot | None:
        """A slot for a connection to the host; None when one that is kept will do. Raises ParkedError."""
        paces = self._voice.paces
        while isinstance(asked := paces.ask_host_slot(limit), Deferral):
            if paces.clock() + asked.seconds > latest:
                raise ParkedError(asked)
            if await rest(asked.seconds):
                return None
        return asked

    async def _interval(self, fields: Fields, latest: float) -> None:
        """Wait until a connection may be opened after the last one. Raises ParkedError."""
        paces = self._voice.paces
        while (wait := paces.ask_connect(fields)) is not None:
            if paces.clock() + wait.seconds > latest:
                raise ParkedError(wait)
            await asyncio.sleep(wait.seconds)
