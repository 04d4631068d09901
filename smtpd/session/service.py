"""service — the parts that all connections of one server share

Owns: the configuration a connection began with, the spool, and the extensions that the reply to EHLO offers.
Guarantees: nothing here changes while it is in use: a connection keeps the service it began with.
See: RFC 5321 section 4.1.1.1; the RFC of each extension beside its keyword.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final

from smtpd.envelope import parameters
from smtpd.envelope.parameters import Offered
from smtpd.policy.decision import UNCHANGED
from smtpd.policy.headers import Extent
from smtpd.policy.session import PolicySession, Sources
from smtpd.policy.suppressed import Suppressed
from smtpd.rates.limits import Unlimited

if TYPE_CHECKING:
    from shared.config.smtpd.content import DataPhase
    from shared.config.smtpd.settings import Listener, Server, SmtpdConfig
    from shared.spool.spool import Spool
    from smtpd.envelope.client import Client
    from smtpd.login.authenticate import Authentication
    from smtpd.policy.compile import CompiledPolicy
    from smtpd.policy.decision import Changes
    from smtpd.rates.limits import Rates
    from smtpd.session.body_budget import BodyBudget
    from smtpd.session.overload import Load
    from smtpd.tls import Certificates


IDENT: Final = "ESMTP Pillarbox"
XCLIENT_NAMES: Final = ("NAME", "ADDR", "PORT", "PROTO", "HELO", "LOGIN", "DESTADDR", "DESTPORT")


@dataclass(frozen=True, slots=True)
class Reception:
    """Where messages come in: a server of smtpd.yaml, and the way from it to the queue."""

    spool: Spool
    limits: DataPhase
    serverid: str
    hostname: str


@dataclass(eq=False)
class Service:
    """One server of smtpd.yaml, ready to answer."""

    config: SmtpdConfig
    server: Server
    hostname: str
    spool: Spool
    budget: BodyBudget
    policy: CompiledPolicy
    sources: Sources = field(default_factory=Sources)  # where policy finds answers
    certificates: Certificates | None = None
    authentication: Authentication | None = None
    rates: Rates = field(default_factory=Unlimited)
    serverid: str | None = None  # by which the queue knows where mail came in; None: the server's
    load: Load | None = None  # patience(idle): shorter when the process is nearly full

    @cached_property
    def place(self) -> Reception:
        """Where its messages come in."""
        return Reception(self.spool, self.server.phases.data, self.serverid or self.server.id, self.hostname)

    @cached_property
    def suppressed(self) -> Suppressed:
        """The suppressed addresses, and the addresses that take reports."""
        return Suppressed(self.config.suppression, self.sources.ask)

    @cached_property
    def fixed_lines(self) -> tuple[str, ...]:
        """The extensions that every client is offered, without those that the configuration discards."""
        phases = self.server.phases
        limits = [f"RCPTMAX={phases.rcptto.maxrecipients}"]
        if self.server.limits.messages is not None:
            limits.append(f"MAILMAX={self.server.limits.messages}")
        lines = (
            "PIPELINING",  # RFC 2920
            f"SIZE {phases.data.maxsize}",  # RFC 1870
            "8BITMIME",  # RFC 6152
            "SMTPUTF8",  # RFC 6531
            "ENHANCEDSTATUSCODES",  # RFC 2034
            "CHUNKING",  # RFC 3030; not BINARYMIME, whose content no next hop without it could take
            "DSN",  # RFC 3461
            "MT-PRIORITY",  # RFC 6710
            "LIMITS " + " ".join(limits),  # RFC 9422
        )
        return tuple(line for line in lines if self.announces(line.partition(" ")[0]))

    def announces(self, keyword: str) -> bool:
        """Whether the configuration leaves this extension in the reply to EHLO."""
        return keyword not in self.server.discardkeywords

    def offered(self, client: Client, *, relay: bool) -> Offered:
        """The parameters that MAIL and RCPT of this client may have; `relay`: whether it may relay."""
        if not client.extended:
            return parameters.NOTHING_OFFERED if relay else parameters.NOTHING_OFFERED_TO_STRANGERS
        return self._offers[client.tls is not None, relay]

    def policy_session(self, client: Client, connected: Changes = UNCHANGED) -> PolicySession:
        """Policy's session for this client, from the beginning, or after a phase connect with these changes."""
        partitions = self.config.environment.database.partitions.count
        return PolicySession(self.policy, client, self._sources, partitions, connected=connected)

    def hello(self, client: Client, listener: Listener, *, trusted: bool, relay: bool) -> str:
        """The reply to EHLO (RFC 5321 section 4.1.1.1); relay: whether the client may relay without AUTH."""
        lines = [self.hostname, *self.fixed_lines]
        mechanisms = self.authentication.mechanisms(client) if self.authentication is not None else ()
        hold = self.server.phases.mailfrom.maxhold
        if hold is not None and (relay or mechanisms):  # after AUTH a client need not say EHLO again
            lines.append(parameters.futurerelease(hold, datetime.now(UTC)))
        if client.tls is not None:
            lines.append("REQUIRETLS")  # RFC 8689 section 2: only where TLS is
        elif self.certificates is not None and listener.tls == "starttls":
            lines.append("STARTTLS")  # RFC 3207
        if mechanisms:
            lines.append("AUTH " + " ".join(mechanisms))  # RFC 4954 section 3
        if trusted:
            lines.append("XCLIENT " + " ".join(XCLIENT_NAMES))
        return "\r\n".join([*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"])

    @cached_property
    def _sources(self) -> Sources:
        limits = self.server.phases.data
        return replace(self.sources, header=Extent(limits.maxheader, limits.maxheaderlines))

    @cached_property
    def _offers(self) -> dict[tuple[bool, bool], Offered]:
        """By whether the client is under TLS, and whether it may relay."""
        return {(tls, relay): self._offer(tls=tls, relay=relay) for tls in (False, True) for relay in (False, True)}

    def _offer(self, *, tls: bool, relay: bool) -> Offered:
        return Offered(
            size=self.server.phases.data.maxsize if self.announces("SIZE") else None,
            eightbitmime=self.announces("8BITMIME"),
            smtputf8=self.announces("SMTPUTF8"),
            dsn=self.announces("DSN"),
            hold=self.server.phases.mailfrom.maxhold,
            priority=self.announces("MT-PRIORITY"),
            requiretls=tls,
            tls=tls,
            auth=True,
            relay=relay,
        )
