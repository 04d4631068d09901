"""deliver — one attempt: some recipients of one message over one transport

Owns: the steps find hosts → talk → classify → decide about a retry, within the lease; and the result of mail whose
    transport is not configured.
Guarantees: a Result for every recipient, with any peer. An attempt ends when its lease does, so that no other
    worker begins while this one still talks; heartbeats extend the lease (queued.dispatch). No database connection is
    held meanwhile.
See: RFC 5321 section 4.5.4.1 (retries); RFC 1047 (why a lost final reply duplicates).
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from queued.destinations.hosts import Entrance, Hosts
from queued.outcome.classify import of_our_login, wants_login
from queued.outcome.own_login import note
from queued.outcome.remainder import cut_off, with_remainder
from queued.outcome.settle import Settler, deferred
from queued.pacing.match import Fields
from queued.pacing.pace import Paces
from queued.routing.find_hops import HopFinder, Ourselves
from queued.routing.resolver import Resolver, ResolverClosedError
from queued.routing.route import Unroutable, way
from queued.routing.site import Parted, SeenSites, site_way
from queued.routing.warmup import Warmups
from queued.smtp import conversation
from queued.smtp.auth import logins
from queued.smtp.client import SmtpConnection
from queued.smtp.failover import talk
from queued.smtp.lmtp import LmtpConnection
from queued.smtp.own_secrets import OwnSecrets
from queued.smtp.pool import ConnectionPool, ReuseLimits
from queued.smtp.sessions import SourceChooser, SourceSettings
from queued.smtp.transaction import Timeouts, Transaction
from queued.tls.context import Contexts
from queued.tls.plan import TlsPlanner
from queued.values import PoolClosedError, Spoken
from queued.waiting import watchdog
from queued.waiting.deferral import Deferral, ParkedError
from shared.config.queued.routing import Dns
from shared.config.queued.settings import Claim as ClaimSettings
from shared.config.queued.transport import Retry
from shared.mail.outcome import Outcome
from shared.masking import show
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from queued.outcome.react import Reactions
    from queued.routing.route import Hop
    from queued.routing.site import Hops
    from queued.smtp.failover import Talk
    from queued.smtp.transaction import TransactionResult
    from queued.tls.demanded import TlsAsked
    from queued.tls.mta_sts_cache import MtaSts
    from queued.tls.plan import Plan
    from queued.values import Claimed, Lease, Result
    from shared.config.queued.transport import Timeout
    from shared.config.queued.transport import Transport as TransportSettings
from queued.values import Body

__all__ = ["Body", "Deferral", "Transport", "without_transport"]

_PARTED: Final = 1.0  # seconds until recipients that can no longer share an attempt are tried apart


class Transport:
    """How a set of destinations is reached, with the connections it keeps open."""

    def __init__(
        self,
        settings: TransportSettings,
        hostname: str,
        resolver: Resolver | None = None,
        ourselves: Sequence[str] = (),
        *,
        paces: Paces | None = None,
        warmups: Warmups | None = None,
        reactions: Reactions | None = None,
        sts: MtaSts | None = None,
        claim: ClaimSettings | None = None,
        secrets: OwnSecrets | None = None,
    ) -> None:
        """`resolver`, `paces`, `warmups`, `sts`: the worker's own, else one of each with every setting at its default.

        `ourselves`: names and addresses under which mail comes back to us, besides `hostname`.
        `claim`: how much a worker has in flight, of which each host has its share.
        `reactions`: what the rules of queued.yaml say about replies.
        `secrets`: those of all logins of the worker, to be masked in replies.
        """
        self.settings = settings
        named = [source.hostname for source in settings.sources]
        own = [name for name in (hostname, settings.hostname, *named, *ourselves) if name]
        resolver = resolver or Resolver(Dns())
        contexts = Contexts(settings.tls, f"transports[{settings.id}].tls")
        self.finder = HopFinder(settings, resolver, Ourselves(own))
        self._sites = SeenSites()
        self.tls = TlsPlanner(settings, resolver, contexts, sts)
        #: Our logins by host. Secrets are read here: other secrets need another transport.
        self.secrets = OwnSecrets() if secrets is None else secrets
        self.logins = logins(settings, self.secrets)
        self._voice = SourceSettings.of(settings, hostname, paces or Paces(), warmups or Warmups(), self.logins)
        #: Whether a login can be ours to correct: where DNS leads, a host that wants one is the recipient's trouble.
        self.login_is_ours = settings.connection.mode != "mx"
        self._settler = Settler(settings.id, settings.retry, reactions)
        self.hosts = Hosts(settings, claim or ClaimSettings())
        pooling = settings.pooling
        self._pool = ConnectionPool(
            timeouts=_seconds(settings.timeout),
            concurrency=settings.concurrency,
            limits=ReuseLimits(pooling.transactions, pooling.idle.total_seconds(), pooling.age.total_seconds()),
            contexts=contexts,
            speaks=LmtpConnection if settings.connection.protocol == "lmtp" else SmtpConnection,
            secrets=self.secrets,
            discards=frozenset(settings.discardkeywords),
        )
        # RFC 3461 section 5.2: by LMTP mail has arrived where it ends, by SMTP it goes on.
        self._last = settings.connection.protocol == "lmtp"

    async def close(self) -> None:
        """Close every connection, waiting for those in use."""
        self.hosts.close()
        await self._pool.close()

    async def attempt(
        self,
        claimed: tuple[Claimed, ...],
        body: Body,
        lease: Lease,
        prefix: bytes = b"",
        *,
        sender: str | None = None,
    ) -> list[Result] | Deferral | None:
        """Try these recipients of one message, which all go one way. None: there was no try, because we are stopping.

        prefix: header fields to send before the content, such as signatures. sender: for MAIL FROM, instead of its own.

        TimeoutError when the lease ended first: the peer may have the message, and another worker may own the row.
        """
        started = monotonic()
        site: str | None = None
        offered = Transaction.of(claimed, body, prefix, sender)
        rank = (claimed[0].priority < 0) - (claimed[0].priority > 0), claimed[0].id
        entrance = Entrance(self.hosts, rank, len(claimed), claimed[0].size)
        talk_kept = conversation.begin(kept=self.settings.keepconversation)
        try:
            async with lease.held():
                found = await self._find(claimed)
                site = found.site.name if found.site else None
                now = claimed[0].now() if self.settings.sources else claimed[0].claimed_at
                speaker = SourceChooser(self._voice, Fields.of(claimed[0], site), now)
                self._led(claimed[0].recipient.domain, found.hops)
                hops = await speaker.prepare(found.hops)
                plan = await self._plan(claimed, hops, offered.tls_asked)
                talked = await self._talk(speaker, hops, plan, offered, entrance)
            again = self._again(speaker, talked.hop, plan, lease, entrance)
            judged = await with_remainder(talked.result, offered, again)
        except Unroutable as error:
            duration = timedelta(seconds=monotonic() - started)
            return [self._settled(c, error.outcome, None, None, duration) for c in claimed]
        except Parted:
            return Deferral(_PARTED, "the recipients' domains can share an attempt no longer")
        except ParkedError as parked:
            return parked.until
        except (PoolClosedError, ResolverClosedError):
            return None
        finally:
            lease.let_go()
        if not speaker.spoke and speaker.waits:
            return min(speaker.waits)
        duration = timedelta(seconds=monotonic() - started)
        remote, source = str(talked.hop), speaker.source
        if (wanted := wants_login(each.outcome for each in judged)) is not None:
            login = {"user": None, "mechanism": None}  # the host misses one; refused ones tell of themselves
            events.emit("auth.refused", transport=self.settings.id, remote=remote, error=wanted.text, **login)
        lines = None if talk_kept is None else str(talk_kept)
        return [
            self._settled(
                *(c, outcome, reply, remote, duration),
                spoken=Spoken(
                    *(result.tls, source, result.dsn, self._last),
                    conversation=None if outcome.kind == "delivered" else lines,
                ),
                site=site,
            )
            for c, (outcome, reply, result) in zip(claimed, judged, strict=True)
        ]

    def way(self, domain: str) -> str:
        """Recipients of one message may share an attempt if their domains have the same way."""
        if self.settings.connection.sites and not self._voice.paces.by_destination:
            return site_way(domain, self.settings, self._sites.of(domain, monotonic()))
        return way(domain, self.settings)

    def login_refused(self, domain: str) -> bool:
        """Whether mail for this domain stays, or stayed until just now, because a host of ours refuses our login."""
        return self.login_is_ours and self.hosts.login_refused(domain)

    def _settled(self, c: Claimed, outcome: Outcome, *said: Any, **more: Any) -> Result:
        """As Settler.settle, for mail that perhaps stays because our login is what stops it.

        It does at the host that refused the login, and at another, or at no host, that was not reached since.
        """
        if outcome.kind != "deferred" or not self.login_is_ours:
            return self._settler.settle(c, outcome, *said, **more)
        kept = of_our_login(outcome)
        if not kept and outcome.scope == "destination":
            kept = c.login_refused or self.hosts.login_refused(c.recipient.domain)
            outcome = note(outcome) if kept else outcome
        return self._settler.settle(c, outcome, *said, **more, kept=kept)

    def shut(self, domain: str, *, follow: int = 0) -> Deferral | None:
        """For how long to park mail for this domain, because its hosts are shut or cannot be found now; else None.

        follow: how many newer recipients may follow.
        """
        return self.hosts.shut(domain) or self.finder.shut(domain, follow=follow)

    def _led(self, domain: str, hops: Sequence[Hop]) -> None:
        """Remember where DNS led; ParkedError, before anything else is asked about these hosts, when all are shut."""
        self.hosts.led(domain, hops)
        if (shut := self.hosts.shut(domain)) is not None:
            raise ParkedError(shut)

    async def _find(self, claimed: Sequence[Claimed]) -> Hops:
        """Where these recipients' mail may go; Parted when their domains turn out not to be one site."""
        domains = self._domains(claimed)
        if not self.settings.connection.sites:
            return await self.finder.found(domains[0])
        found = await asyncio.gather(*map(self.finder.found, domains), return_exceptions=True)
        return self._sites.together(domains, found, monotonic())

    async def _plan(self, claimed: Sequence[Claimed], hops: Sequence[Hop], asked: TlsAsked) -> Plan:
        """The TLS requirements; Parted when the domains have different ones."""
        domains = self._domains(claimed)
        plan = await self.tls.plan(domains[0], hops, asked)
        if len(domains) == 1:
            return plan
        others = (self.tls.plan(domain, hops, asked) for domain in domains[1:])
        if any(other != plan for other in await asyncio.gather(*others)):
            self._sites.part(domains, monotonic())
            raise Parted
        return plan

    def _domains(self, claimed: Sequence[Claimed]) -> list[str]:
        """The domains that decide about the way: one speaks for all, unless they share a site."""
        if len(claimed) == 1 or not self.settings.connection.sites:
            return [claimed[0].recipient.domain]
        return list(dict.fromkeys(c.recipient.domain for c in claimed))

    async def _talk(
        self, speaker: SourceChooser, hops: Sequence[Hop], plan: Plan, offered: Transaction, entrance: Entrance
    ) -> Talk:
        """The conversation, and what is to be remembered of it."""
        limits, dead = self.settings.connection, self.finder.dead
        used = True  # when it ends early, it is unknown what the host has
        try:
            talked = await talk(
                self._pool,
                hops,
                offered,
                wanted=lambda hop: speaker.session(hop, plan[hop]),
                entrance=entrance,
                addresses=limits.addresses,
                sessions=limits.sessions,
            )
            used = talked.hop not in talked.unreachable
        except (ParkedError, PoolClosedError):
            used = False
            raise
        finally:
            speaker.done(used=used)
        for hop in talked.unreachable:
            if hop in speaker.asked:
                dead.failed(hop, monotonic())
        if used:
            dead.answered(talked.hop)
        return talked

    def _again(
        self, speaker: SourceChooser, hop: Hop, plan: Plan, lease: Lease, entrance: Entrance
    ) -> Callable[[Transaction], Awaitable[TransactionResult | None]]:
        """How the same message is offered to the same host once more, for recipients over the limit before.

        However that ends, what the others got stays as it is: they have the message.
        """

        async def again(offered: Transaction) -> TransactionResult | None:
            watchdog.reached("connect")
            try:
                async with lease.held():
                    return (await self._talk(speaker, [hop], plan, offered, entrance)).result
            except (ParkedError, PoolClosedError):
                return None
            except Exception as error:  # noqa: BLE001 - the end of the lease, or a fault of ours
                if not isinstance(error, TimeoutError):
                    events.emit("daemon.failed", part="attempt", error=repr(error))
                return cut_off(offered, watchdog.latest() or "dot")

        return again


def without_transport(claimed: Sequence[Claimed]) -> list[Result]:
    """A try of recipients whose transport queued.yaml does not have: a fault of ours, which the operator may correct.

    Deferred by the schedule that transports have when they name none, so that such mail expires like any other.
    """
    text = f"transport {show(claimed[0].transportid)} does not exist in queued.yaml"
    outcome = Outcome("deferred", "us", None, "4.3.5", text)
    return [deferred(c, outcome, None, timedelta(0), Retry()) for c in claimed]


def _seconds(timeout: Timeout) -> Timeouts:
    return Timeouts(**{name: getattr(timeout, name).total_seconds() for name in Timeouts.__dataclass_fields__})
