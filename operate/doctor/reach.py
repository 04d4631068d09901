"""reach — tries the hosts that transports name, and asks DNS for the names we bear

Owns: one conversation with each host that queued.yaml names, by the worker's own client: connect, greeting, EHLO, TLS
    as the transport demands, login, QUIT; one question to DNS for each of our names, and one to each name server.
Guarantees: no mail is sent, and no recipient is named. Each step has ten seconds at most. Where mail waits because a
    login was refused, doctor does not log in once more: a host may lock the account.
See: queued/smtp/handshake.py; queued/routing/resolver.py.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed
from queued.deliver import Transport
from queued.routing.route import Fixed, Unroutable, choose
from queued.smtp.client import SmtpConnection
from queued.smtp.lmtp import LmtpConnection
from queued.smtp.transaction import ConversationError, Timeouts
from queued.tls.context import Contexts
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from queued.routing.dns_answer import Answer
    from queued.routing.resolver import Resolver
    from queued.routing.route import Hop
    from queued.tls.demanded import TlsWanted
    from shared.config.queued.settings import QueuedConfig
    from shared.config.queued.transport import Transport as Settings
    from shared.config.smtpd.settings import SmtpdConfig

_REACHED: Final = "transport.reached"
_NAMES: Final = "host.dns"
_SERVERS: Final = "see routing.dns of queued.yaml, or /etc/resolv.conf"
_PATIENCE: Final = 10.0  # seconds for each step, in which a host of ours answers
_NOWHERE: Final = "doctor.invalid"  # a domain that no route names, so that the transport's own hosts are chosen
_TIMEOUTS: Final = replace(
    Timeouts(), **{each.name: min(_PATIENCE, float(getattr(Timeouts(), each.name))) for each in fields(Timeouts)}
)


async def reached(queued: QueuedConfig, refused: Collection[str], resolver: Resolver) -> list[Finding]:
    """A finding for each transport with hosts of its own; `refused`: transports whose login is refused already."""
    each = await asyncio.gather(
        *(_transport(settings, queued, resolver, login=settings.id not in refused) for settings in queued.transports)
    )
    return [finding for finding in each if finding] or [
        Finding(_REACHED, Severity.OK, "no transport names hosts to try")
    ]


async def _transport(settings: Settings, queued: QueuedConfig, resolver: Resolver, *, login: bool) -> Finding | None:
    """What became of each host that this transport names, in itself or in a route."""
    own = (_NOWHERE,) if settings.connection.names_next_hop else ()  # without one, transport.next_hop raises the alarm
    domains = [domain for domain in (*own, *settings.routes) if _is_fixed(domain, settings)]
    if not domains:
        return None
    try:
        transport = Transport(settings, socket.getfqdn(), resolver, queued.routing.ourselves)
    except ConfigError:
        return None  # a secret that cannot be read is a finding of login.secrets
    hops: dict[Hop, TlsWanted] = {}
    for domain in domains:
        found = await transport.finder.find(domain)
        hops |= await transport.tls.plan(domain, found)
    said = await asyncio.gather(*(_talk(hop, hops[hop], transport, login=login) for hop in hops))
    await transport.close()
    return verdict(settings.id, dict(zip(map(str, hops), said, strict=True)), login=login)


def verdict(transport: str, said: dict[str, tuple[bool, str]], *, login: bool) -> Finding:
    """One finding of what each host said: whether it is as it should be, and words."""
    bad = [f"{host}: {words}" for host, (fine, words) in said.items() if not fine]
    if not bad:
        good = listed(f"{host}: {words}" for host, (_, words) in said.items())
        untried = "" if login else "; not logged in, because the host refused us lately (login.refused)"
        return Finding(_REACHED, Severity.OK, f"transport {transport}: {good}{untried}")
    severity = Severity.ALARM if len(bad) == len(said) else Severity.WARN
    remedy = "correct connection, tls or auth of the transport, or the host; `pillarbox relay` names another one"
    return Finding(_REACHED, severity, f"transport {transport}: {listed(bad, 3)}", remedy)


def _is_fixed(domain: str, settings: Settings) -> bool:
    """Whether mail for this domain goes to hosts that queued.yaml names."""
    try:
        return not domain.startswith((".", "*")) and isinstance(choose(domain, settings), Fixed)
    except Unroutable:
        return False


async def _talk(hop: Hop, tls: TlsWanted, transport: Transport, *, login: bool) -> tuple[bool, str]:
    """Whether the host takes us, and what became of it in words."""
    settings = transport.settings
    speaks = LmtpConnection if settings.connection.protocol == "lmtp" else SmtpConnection
    known = transport.logins.get((hop.host, hop.port)) if login else None
    try:
        connection = await speaks.open(
            hop.host,
            hop.port,
            hostname=settings.hostname or socket.getfqdn(),
            timeouts=_TIMEOUTS,
            tls=tls,
            contexts=Contexts(settings.tls, f"transports[{settings.id}].tls"),
            login=known,
            secrets=transport.secrets,
        )
    except ConversationError as error:
        return False, error.fault.text
    words = "no TLS" if connection.tls == "none" else connection.tls
    await connection.close()
    return True, words + (", logged in" if known else "")


async def names(smtpd: SmtpdConfig, queued: QueuedConfig, resolver: Resolver) -> Finding:
    """Whether DNS answers, and knows the names that we give other hosts."""
    given = [server.hostname for server in smtpd.servers] + [each.hostname for each in queued.transports]
    ours = sorted(
        {name or socket.getfqdn() for name in given} - {name for name in given if name and name.startswith("[")}
    )
    by_mx = any(each.connection.mode == "mx" for each in queued.transports)
    answers, unanswered = await asyncio.gather(
        asyncio.gather(*(_addresses(resolver, name) for name in ours)),
        resolver.unanswered(ours[0] if ours else "localhost"),
    )
    return named(dict(zip(ours, answers, strict=True)), unanswered, by_mx=by_mx)


async def _addresses(resolver: Resolver, name: str) -> Answer[object] | None:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await resolver.addresses(name)
    except (ValueError, TimeoutError):
        return None


def named(answers: dict[str, Answer[object] | None], unanswered: Sequence[str] = (), *, by_mx: bool) -> Finding:
    """One finding of what DNS says about our names.

    unanswered: the name servers that do not answer. by_mx: mail goes to mail exchangers, which DNS names.
    """
    silent = [name for name, answer in answers.items() if answer is None or answer.state == "failed"]
    absent = [name for name, answer in answers.items() if answer is not None and answer.state in {"nothing", "unknown"}]
    if silent:
        text = f"DNS does not answer for {listed(silent)}"
        severity = Severity.ALARM if by_mx else Severity.NOTE
        remedy = _SERVERS if by_mx else ""
        return Finding(_NAMES, severity, text + ("" if by_mx else "; no transport needs it"), remedy)
    if unanswered:
        text = f"name server {listed(unanswered)} does not answer; the others do"
        return Finding(_NAMES, Severity.WARN if by_mx else Severity.NOTE, text, _SERVERS if by_mx else "")
    if absent:
        text = f"{listed(absent)} has no address in DNS, and many hosts refuse mail from such a name"
        remedy = "publish an address record, or set hostname to a name that has one" if by_mx else ""
        return Finding(_NAMES, Severity.WARN if by_mx else Severity.NOTE, text, remedy)
    return Finding(_NAMES, Severity.OK, f"{listed(answers)} found" if answers else "our names are addresses")
