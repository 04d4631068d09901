"""handshake — opens a connection up to its EHLO, with TLS as required

Owns: connecting, greeting, EHLO or HELO, STARTTLS and EHLO again, logging in; clear text after a failed handshake,
    where that is allowed.
Guarantees: TLS is as `tls` requires before `open_session` returns; nothing received before the handshake counts after
    it: octets that are there already are an attack or a broken host, and end the connection. A host that refuses us
    gets QUIT. After a failure nothing is left open.
Raises: ConversationError.
See: RFC 5321 §3.1, §3.2; RFC 3207 §4, §4.2, §5; CVE-2011-0411 (replies injected before the handshake); Postfix
    smtp_tls_security_level=may, which goes on in clear text on a new connection.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from queued.smtp import auth, conversation
from queued.smtp.commands import ehlo_command, read_extensions
from queued.smtp.transaction import ConversationError, Fault
from queued.smtp.wire import Wire, connect
from queued.tls.demanded import CLEAR
from queued.tls.verify import disproof, negotiated
from shared.observe import events

if TYPE_CHECKING:
    from queued.smtp.auth import Login
    from queued.smtp.own_secrets import OwnSecrets
    from queued.smtp.transaction import Timeouts
    from queued.tls.context import Contexts
    from queued.tls.demanded import TlsWanted
    from queued.waiting.watchdog import Phase
    from shared.mail.smtp_reply import Reply


class Introduction(NamedTuple):
    """How we come: our name in EHLO, the local address we leave from (None: the system's choice), and what TLS.

    login: our login, None for none. verbs: how we greet, best first; RFC 2033 section 4.1 has LHLO alone. secrets: what
    must not be read in a reply of the host's, None for nothing. discards: keywords of EHLO that count as not offered.
    """

    hostname: str
    source: str | None
    tls: TlsWanted
    contexts: Contexts
    login: Login | None = None
    verbs: tuple[str, ...] = ("EHLO", "HELO")
    secrets: OwnSecrets | None = None
    discards: frozenset[str] = frozenset()


class Opened(NamedTuple):
    """A connection past its EHLO. tls: what was negotiated, or "none"."""

    wire: Wire
    extensions: dict[str, str]
    tls: str


async def open_session(host: str, port: int, we: Introduction, timeouts: Timeouts) -> Opened:
    """Connect to host:port and introduce ourselves; ValueError for a name of ours that is none."""
    commands = tuple(ehlo_command(verb, we.hostname) for verb in we.verbs)
    if we.tls.refused:
        raise ConversationError(Fault("tls", "connect", we.tls.refused))
    try:
        return await _open(host, port, we, commands, timeouts)
    except ConversationError as error:
        if error.fault.kind != "tls" or not we.tls.may_be_clear:
            raise
        events.emit("tls.abandoned", remote=f"{host}:{port}", error=error.fault.text)
    return await _open(host, port, we._replace(tls=CLEAR), commands, timeouts)


async def _open(host: str, port: int, we: Introduction, commands: tuple[bytes, ...], timeouts: Timeouts) -> Opened:
    wire = await connect(host, port, limit=timeouts.connect, source=we.source, secrets=we.secrets)
    opened = False
    try:
        tls = await _start_tls(wire, we, timeouts, "connect") if we.tls.implicit else "none"
        greeting = await wire.reply("greeting", timeouts.greeting)
        if not greeting.is_positive:
            raise _refused("greeting", greeting)
        extensions = await _hello(wire, commands, timeouts, we.discards)
        if tls == "none" and we.tls.speak != "never" and await _may_start(wire, we.tls, extensions, timeouts):
            tls = await _start_tls(wire, we, timeouts, "starttls")
            # RFC 3207 §4.2: what was said before, extensions above all, is forgotten.
            extensions = await _hello(wire, commands, timeouts, we.discards)
        if we.login is not None:
            conversation.noted("login, of which only the codes of the replies are kept")
            await auth.log_in(wire, we.login, auth.LoginTarget(host, port, tls, we.tls), extensions, timeouts.auth)
        opened = True
        return Opened(wire, extensions, tls)
    except ConversationError as error:
        if error.fault.kind == "refused":
            await wire.close(b"QUIT\r\n", timeouts.quit)  # RFC 5321 §3.1: the host that refused us waits for QUIT
        raise
    finally:
        if not opened:
            wire.abort()


async def _hello(
    wire: Wire, commands: tuple[bytes, ...], timeouts: Timeouts, discards: frozenset[str]
) -> dict[str, str]:
    """EHLO, and HELO where EHLO is not known (RFC 5321 §3.2); what the peer offers, but for what counts as not."""
    ehlo, *helo = commands
    conversation.said(ehlo)
    wire.write(ehlo, replies=1)
    reply = await wire.reply("helo", timeouts.helo)
    if reply.is_positive:
        return {name: value for name, value in read_extensions(reply).items() if name not in discards}
    if reply.is_permanent and helo:
        conversation.said(helo[0])
        wire.write(helo[0], replies=1)
        reply = await wire.reply("helo", timeouts.helo)
    if not reply.is_positive:
        raise _refused("helo", reply)
    return {}


async def _may_start(wire: Wire, tls: TlsWanted, extensions: dict[str, str], timeouts: Timeouts) -> bool:
    """Whether the peer waits for the handshake now; False where clear text will do instead."""
    if "STARTTLS" not in extensions:
        if tls.speak == "must":
            raise ConversationError(Fault("tls", "starttls", f"host does not offer STARTTLS, which {tls.why} requires"))
        return False
    conversation.said(b"STARTTLS\r\n")
    wire.write(b"STARTTLS\r\n", replies=1)
    reply = await wire.reply("starttls", timeouts.starttls)
    if reply.is_positive:
        return True
    if tls.may_be_clear:
        return False
    text = f"host refused STARTTLS, which {tls.why} requires: {reply}"
    raise ConversationError(Fault("tls", "starttls", text, reply))


async def _start_tls(wire: Wire, we: Introduction, timeouts: Timeouts, phase: Phase) -> str:
    """The handshake, and whether the host proved what it had to; what was negotiated."""
    session = await wire.start_tls(we.contexts.context(we.tls.proof), we.tls.server, phase, timeouts.starttls)
    reason = disproof(session, we.tls, datetime.now(UTC))
    if reason is not None:
        raise ConversationError(Fault("tls", phase, f"host showed {reason} ({we.tls.why})"))
    tls = negotiated(session, we.tls)
    conversation.noted(tls)
    return tls


def _refused(phase: Phase, reply: Reply) -> ConversationError:
    """The peer will not talk to us."""
    return ConversationError(Fault("refused", phase, f"host refused to talk to us: {reply}", reply))
