"""mta_sts_fetch — gets the policy file of a domain by HTTPS

Owns: the one request of RFC 8461 section 3.3, its limits, and which addresses it may go to.
Guarantees: at most LONGEST octets and `limit` seconds; no redirect is followed; the certificate is verified for
    mta-sts.DOMAIN before anything is asked. What a stranger's DNS leads to is connected to only where mail might be.
Raises: NoPolicyError, whose text says why, for people.
See: RFC 8461 section 3.3; RFC 9110 section 15.4 (redirects).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

import h11

from queued.routing.route import may_connect
from queued.tls.mta_sts import LONGEST, StsPolicy, read_policy
from queued.tls.verify import misnamed
from shared.errors import cause

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from queued.routing.resolver import Resolver

    type Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
    #: Connects to the HTTPS server of this host name.
    type Connect = Callable[[str, ssl.SSLContext], Awaitable[Streams]]

_PORT: Final = 443
_BLOCK: Final = 16384  # octets read at once
_OK: Final = 200
_TRIES: Final = 4  # addresses


class NoPolicyError(Exception):
    """The policy could not be had."""


class Trust(NamedTuple):
    """Whom a fetcher believes and where it may go: what one has fetched holds for others with the same trust."""

    authorities: Path | None = None  # the file of them; None for the system's
    private: bool = False  # whether addresses that only our own networks reach are allowed


_USUAL: Final = Trust()


class Fetcher:
    """Fetches policies with one TLS context."""

    def __init__(
        self, context: Callable[[], ssl.SSLContext], connect: Connect, limit: float, trust: Trust = _USUAL
    ) -> None:
        """`context` verifies certificates, not names; `limit`: seconds for one policy, everything included.

        trust: what `context` and `connect` were made for.
        """
        self.trust = trust
        self._context = context
        self._connect = connect
        self._limit = limit

    async def fetch(self, domain: str) -> StsPolicy:
        """The policy that the domain publishes."""
        host = f"mta-sts.{domain}"
        try:
            async with asyncio.timeout(self._limit):
                octets = await self._get(host)
        except TimeoutError:
            raise NoPolicyError(f"https://{host}: no policy within {self._limit:g} s") from None
        except ssl.SSLError as error:
            reason = getattr(error, "verify_message", None) or error.reason or "handshake refused"
            raise NoPolicyError(f"https://{host}: TLS failed: {reason}") from None
        except (OSError, EOFError, ValueError, h11.RemoteProtocolError) as error:
            raise NoPolicyError(f"https://{host}: {cause(error)}") from None
        policy = read_policy(octets)
        if policy is None:
            raise NoPolicyError(f"https://{host}: the file is not a valid MTA-STS policy")
        return policy

    async def _get(self, host: str) -> bytes:
        reader, writer = await self._connect(host, self._context())
        try:
            session = writer.get_extra_info("ssl_object")
            # RFC 8461 section 3.3: the certificate is for this very host.
            reason = misnamed(session.getpeercert() or {}, (host,))
            if reason is not None:
                raise NoPolicyError(f"https://{host}: showed {reason}")
            http = h11.Connection(h11.CLIENT)
            headers = [("Host", host), ("Accept", "text/plain"), ("Connection", "close")]
            request = h11.Request(method="GET", target="/.well-known/mta-sts.txt", headers=headers)
            writer.write((http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b""))
            await writer.drain()
            return await _receive(http, reader, host)
        finally:
            writer.transport.abort()


async def _receive(http: h11.Connection, reader: asyncio.StreamReader, host: str) -> bytes:
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_BLOCK))
        elif isinstance(event, h11.Response):
            if event.status_code != _OK:  # a redirect is no policy either
                raise NoPolicyError(f"https://{host}: answered {event.status_code}")
            kind = dict(event.headers).get(b"content-type", b"")
            if kind.partition(b";")[0].strip().lower() != b"text/plain":
                raise NoPolicyError(f"https://{host}: answered with another content type than text/plain")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > LONGEST:
                raise NoPolicyError(f"https://{host}: sends more than {LONGEST} octets")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)


def by_resolver(resolver: Resolver, *, private: bool) -> Connect:
    """Connects to the addresses that the resolver finds; `private` allows those that only our own networks reach."""

    async def connect(host: str, context: ssl.SSLContext) -> Streams:
        answer = await resolver.addresses(host)
        allowed = [address for address in answer.records if may_connect(address, private=private)]
        failure: OSError | None = None
        for address in allowed[:_TRIES]:
            try:
                return await asyncio.open_connection(
                    str(address), _PORT, ssl=context, server_hostname=host, limit=_BLOCK
                )
            except ssl.SSLError:
                raise
            except OSError as error:
                failure = error
        raise failure or NoPolicyError(f"https://{host}: has no address that may be connected to")

    return connect
