"""mta_sts_fetch — gets the policy file of a domain by HTTPS

Owns: the one request of RFC 8461 section 3.3, its limits, and which addresses it may go to.
Guarantees: at most LONGEST octets and `limit` seconds; no redirect is followed; the certificate is verified for
    mta-sts.DOMAIN before anything is asked. What a stranger's DNS leads to is connected to only where mail might be.
Raises: NoPolicyError, whose text says why, for people.
See: RFC 8461 section 3.3; RFC 9110 section 15.4 (redirects).
"""

from __future__ import annotations

import asyncio
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.routing.route import may_connect
from queued.tls.mta_sts import LONGEST, StsPolicy, read_policy
from shared.http import HttpClient, HttpFailed

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from queued.routing.resolver import Resolver
    from shared.http import HttpAnswer

    #: Where the HTTPS server of this host name may be asked: addresses as URLs have them.
    type Find = Callable[[str], Awaitable[Sequence[str]]]

_OK: Final = 200
_TRIES: Final = 4  # addresses


class NoPolicyError(Exception):
    """The policy could not be had."""


class Trust(NamedTuple):
    """The authorities and hosts that a fetcher trusts: policies are shared between fetchers with the same trust."""

    authorities: Path | None = None  # the file of them; None for the system's
    private: bool = False  # whether addresses that only our own networks reach are allowed


_USUAL: Final = Trust()


class Fetcher:
    """Fetches policies with one TLS context."""

    def __init__(self, context: Callable[[], ssl.SSLContext], find: Find, limit: float, trust: Trust = _USUAL) -> None:
        """`context` verifies certificates and names; `limit`: seconds for one policy, everything included.

        trust: what `context` and `find` were made for.
        """
        self.trust = trust
        self._context = context
        self._find = find
        self._limit = limit

    @cached_property
    def _client(self) -> HttpClient:
        return HttpClient(LONGEST, self._context())

    async def fetch(self, domain: str) -> StsPolicy:
        """The policy that the domain publishes."""
        host = f"mta-sts.{domain}"
        try:
            async with asyncio.timeout(self._limit):
                answer = await self._get(host)
        except TimeoutError:
            raise NoPolicyError(f"https://{host}: no policy within {self._limit:g} s") from None
        except (HttpFailed, ValueError) as error:
            raise NoPolicyError(f"https://{host}: {error}") from None
        if answer.status != _OK:  # a redirect is no policy either
            raise NoPolicyError(f"https://{host}: answered {answer.status}")
        if answer.kind != "text/plain":
            raise NoPolicyError(f"https://{host}: answered with another content type than text/plain")
        policy = read_policy(answer.body)
        if policy is None:
            raise NoPolicyError(f"https://{host}: the file is not a valid MTA-STS policy")
        return policy

    async def _get(self, host: str) -> HttpAnswer:
        headers = [("Host", host), ("Accept", "text/plain")]
        failure = HttpFailed("has no address that may be connected to")
        for address in (await self._find(host))[:_TRIES]:
            try:
                return await self._client.ask("GET", f"https://{address}/.well-known/mta-sts.txt", headers, name=host)
            except HttpFailed as error:
                failure = error
        raise failure


def by_resolver(resolver: Resolver, *, private: bool) -> Find:
    """The addresses that the resolver finds; `private` allows those that only our own networks reach."""

    async def find(host: str) -> list[str]:
        answer = await resolver.addresses(host)
        allowed = [address for address in answer.records if may_connect(address, private=private)]
        return [f"[{address}]" if address.version == 6 else str(address) for address in allowed]  # noqa: PLR2004 - IPv6

    return find
