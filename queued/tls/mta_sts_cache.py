"""mta_sts_cache — the MTA-STS policies of domains, kept as long as they ask to be

Owns: the times at which the record is looked up and the policy fetched, and the kept policies.
Guarantees: a kept policy applies until its max_age is over, whatever happens to the record or the server meanwhile: an
    attacker cannot remove it (RFC 8461 section 10.2). A domain whose policy cannot be fetched has none (section 3.3),
    and is not asked again for a while. Many requests for the same domain at once fetch it once; only transports that
    trust different authorities, or may go to different networks, share no answers. Memory is bounded by `entries`, the
    domain requested longest ago going first.
Raises: ResolverClosedError while stopping.
See: RFC 8461 sections 3.1, 3.3, 5.1 and 10.2.
Bugs: a policy whose id stays the same is not fetched again before it ends (RFC 8461 section 3.3 suggests once a day).
    Kept in memory only, each worker for itself: after a restart the first attempt trusts DNS once more.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.routing.resolver import ResolverClosedError
from queued.tls.mta_sts import read_record
from queued.tls.mta_sts_fetch import NoPolicyError
from shared.observe import events
from shared.outcome import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from queued.routing.resolver import Resolver
    from queued.tls.mta_sts import StsPolicy
    from queued.tls.mta_sts_fetch import Fetcher, Trust

    type _Place = tuple[Trust, str]  # the asking transport's trust, and the domain

_AGAIN: Final = 300.0  # seconds; RFC 8461 section 3.3 suggests five minutes between failed fetches
_LEAST: Final = 60.0  # seconds a policy is kept at least: 0 would mean one fetch for each message


@dataclass(slots=True)
class _Kept:
    """The facts about one domain. policy: None when there never was one. ident: of the record it was fetched by."""

    policy: StsPolicy | None = None
    ident: str = ""
    ends: float = 0.0  # of the policy, as `clock` has it
    again: float = 0.0  # no fetch before this time
    tried: str = ""  # the id of the last fetch that failed


class MtaSts:
    """The policies of all domains."""

    def __init__(self, entries: int = 10_000, clock: Callable[[], float] = monotonic) -> None:
        """`entries`: the most policies remembered. `clock`: in seconds."""
        self._entries = entries
        self._clock = clock
        self._kept: OrderedDict[_Place, _Kept] = OrderedDict()
        self._fetching: dict[_Place, tuple[asyncio.Task[None], _Kept]] = {}  # and what it is fetched for

    async def policy(self, domain: str, resolver: Resolver, fetcher: Fetcher) -> StsPolicy | None:
        """The policy that holds for mail to this domain now; None for none. Where it is not known, these are asked."""
        domain = domain.lower().rstrip(".")
        try:
            answer = await resolver.txt(f"_mta-sts.{domain}")
        except ValueError:  # a name that cannot be asked for
            return None
        ident = read_record(answer.records)
        place = fetcher.trust, domain
        kept = self._kept.get(place)
        if kept is None:
            if ident is None:
                return None
            # A policy being fetched may have been evicted in the meantime: the next caller still gets it.
            kept = self._kept[place] = self._fetching[place][1] if place in self._fetching else _Kept()
            if len(self._kept) > self._entries:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(place)
        if ident is not None and self._is_due(kept, ident):
            await self._refresh(place, kept, ident, fetcher)
        return kept.policy if self._clock() < kept.ends else None

    async def close(self) -> None:
        """Give up what is being fetched."""
        fetching = [task for task, _ in self._fetching.values()]
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)

    def _is_due(self, kept: _Kept, ident: str) -> bool:
        now = self._clock()
        if kept.policy is not None and kept.ident == ident and now < kept.ends:
            return False
        return now >= kept.again or ident not in {kept.tried, kept.ident}

    async def _refresh(self, place: _Place, kept: _Kept, ident: str, fetcher: Fetcher) -> None:
        if place in self._fetching:
            task = self._fetching[place][0]
        else:
            task = asyncio.create_task(self._fetch(place[1], kept, ident, fetcher))
            self._fetching[place] = task, kept
            task.add_done_callback(lambda done: self._ended(place, done))
        await outcome_of(task, ResolverClosedError)

    def _ended(self, place: _Place, task: asyncio.Task[None]) -> None:
        del self._fetching[place]
        if not task.cancelled():
            task.exception()  # retrieved: callers that wait have it; there may be none

    async def _fetch(self, domain: str, kept: _Kept, ident: str, fetcher: Fetcher) -> None:
        try:
            policy = await fetcher.fetch(domain)
        except NoPolicyError as error:
            kept.tried, kept.again = ident, self._clock() + _AGAIN
            events.emit("mta_sts.failed", domain=domain, error=error)
            return
        kept.policy, kept.ident, kept.tried = policy, ident, ""
        kept.ends = self._clock() + max(policy.max_age, _LEAST)
        events.emit("mta_sts.fetched", domain=domain, mode=policy.mode, id=ident, max_age=policy.max_age)
