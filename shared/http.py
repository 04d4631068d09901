"""http — asks an HTTP server, and reads an answer of bounded size

Owns: the only door to httpx, which is imported with the first request: most daemons make none.
Guarantees: an answer of more than `longest` octets is refused; it is read as it was sent, and nothing is unpacked. On a
    connection that is not kept no more than that and _HEAD octets are read at all, because a server may send replies
    without end before its answer (100 Continue). A redirect is an answer like any other. Proxies and passwords in the
    environment do not count. A request that is cancelled closes its connection; how long one may take is the caller's
    decision, by asyncio.timeout.
Raises: HttpFailed.
See: RFC 9110 section 15.4 (redirects); RFC 9112 section 9.3 (connections that are kept).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.errors import cause

if TYPE_CHECKING:
    from collections.abc import Iterable

    import httpx

    type HttpHeaders = Iterable[tuple[str, str]]


_HEAD: Final = 16_384  # octets of status line and fields, besides the content


class HttpFailed(Exception):
    """There is no usable answer; the text says why."""


class HttpAnswer(NamedTuple):
    """What the server said. kind: the media type, in lower case and without parameters; retry_after: as it was sent."""

    status: int
    body: bytes
    kind: str = ""
    retry_after: str = ""


class HttpClient:
    """Asks; each kept connection has a transport of its own, since a pool looks at all of its own with each request."""

    def __init__(self, longest: int, context: ssl.SSLContext | None = None, *, keep: bool = False) -> None:
        """`context` verifies servers, and httpx sets its protocols (ALPN); without one, https:// is refused.

        keep: connections are used again. A request that fails on the way is then sent once more, since the server may
            have closed a kept connection at that moment: only for requests that may be asked twice.
        """
        self._longest, self._keep = longest, keep
        self._context = context or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which trusts no authority
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def ask(
        self, method: str, url: str, headers: HttpHeaders, body: bytes = b"", *, name: str | None = None
    ) -> HttpAnswer:
        """The answer, with any status; raises HttpFailed. Values of `headers` are one line each.

        name: what the server has to prove by its certificate, where the URL has its address instead.
        """
        import httpx  # noqa: PLC0415 - it takes 0.1 s and 10 MB

        # rspamd's own HTTP, and what may stand before it, keeps a connection only on request (3.4 keeps none).
        fields = [("Connection", "keep-alive" if self._keep else "close"), ("Accept-Encoding", "identity"), *headers]
        limits = httpx.Limits(keepalive_expiry=None)
        transport = self._idle.pop() if self._idle else httpx.AsyncHTTPTransport(verify=self._context, limits=limits)
        if not self._keep:
            pool: Any = transport._pool  # noqa: SLF001 - httpx has no limit, and no public place to put one
            pool._network_backend = _Network(pool._network_backend, self._longest + _HEAD)  # noqa: SLF001 - as above
        again, whole = self._keep, False
        try:
            request = httpx.Request(
                method,
                url,
                headers=[(field.encode(), value.encode()) for field, value in fields],
                content=body,
                extensions={} if name is None else {"sni_hostname": name},
            )
            while not whole:
                try:
                    answer = await self._exchange(transport, request)
                    whole = True
                except (httpx.ReadError, httpx.RemoteProtocolError):
                    if not again:
                        raise
                    again = False
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise HttpFailed(_reason(error)) from None
        else:
            return answer
        finally:
            if whole and self._keep:
                self._idle.append(transport)
            else:  # of a request that was cancelled, httpx may have left a connection open
                await transport.aclose()

    async def close(self) -> None:
        """Close what is kept."""
        while self._idle:
            await self._idle.pop().aclose()

    async def _exchange(self, transport: httpx.AsyncHTTPTransport, request: httpx.Request) -> HttpAnswer:
        answer = await transport.handle_async_request(request)
        body = bytearray()
        try:
            async for piece in answer.aiter_raw():
                body += piece
                if len(body) > self._longest:
                    raise HttpFailed(f"answers {answer.status_code} with more than {self._longest} octets")
        finally:
            await answer.aclose()
        kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        return HttpAnswer(answer.status_code, bytes(body), kind, answer.headers.get("Retry-After", ""))


class _Network:
    """httpcore's way to the network, with connections on which no more than so many octets are read."""

    def __init__(self, network: Any, most: int) -> None:
        self._network, self._most = network, most
        self.sleep = network.sleep

    async def connect_tcp(self, *asked: Any, **named: Any) -> _Stream:
        return _Stream(await self._network.connect_tcp(*asked, **named), self._most)


class _Stream:
    """One of these connections, as httpcore uses it."""

    def __init__(self, stream: Any, left: int) -> None:
        self._stream, self._most, self._left = stream, left, left
        self.write, self.aclose, self.get_extra_info = stream.write, stream.aclose, stream.get_extra_info

    async def start_tls(self, *asked: Any, **named: Any) -> _Stream:
        return _Stream(await self._stream.start_tls(*asked, **named), self._left)

    async def read(self, *asked: Any, **named: Any) -> bytes:
        octets: bytes = await self._stream.read(*asked, **named)
        self._left -= len(octets)
        if self._left < 0:
            raise HttpFailed(f"answers with more than {self._most} octets")
        return octets


def _reason(error: BaseException) -> str:
    """What the system or OpenSSL says; httpx itself says "All connection attempts failed"."""
    beneath: BaseException | None = error
    while beneath is not None and not getattr(beneath, "strerror", None):
        beneath = beneath.__cause__ or beneath.__context__
    return cause(beneath or error)
