"""test-tls — over HTTPS the certificate must be for the endpoint's name, at the address that was checked

Owns: proofs about queued/webhooks/post.py with TLS.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from queued.webhooks import signature
from queued.webhooks.answer import TAKEN
from queued.webhooks.post import Post

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fixtures.peers.certificates import Authority
    from tests.fixtures.peers.web.hooks import Hooks


@pytest.mark.parametrize("name", ["hooks.test", "other.test"])
async def test_only_a_certificate_for_the_name_is_taken(
    hooks: Callable[..., Awaitable[Hooks]], authority: Authority, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    issued = authority.issue("hooks.test")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued["certificate"], issued["privatekey"])
    taker = await hooks(context)

    async def found(_loop: object, _host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", found)
    post = Post(f"https://{name}:{taker.port}/x", private=True, limit=5, context=authority.trust())
    key = signature.key_of(signature.new_secret())
    answer = await post.send("evt_1", b"{}", [key], lambda: datetime.now(UTC))
    await post.close()
    if name == "hooks.test":
        assert answer is TAKEN
        assert taker.requests[0].headers["host"] == f"hooks.test:{taker.port}"
    else:
        assert "certificate" in (answer.error or "").lower()
        assert not taker.requests
