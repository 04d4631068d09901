"""test_content_check — the request to rspamd, and the treatment of invalid answers

Owns: proofs about smtpd/policy/content_check.py and shared/http.py before a scripted HTTP server.
See: tests/integration/smtpd/test_rspamd.py for the real one.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.smtpd.policy_check import ContentCheck
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.engine import CheckResult
from smtpd.policy.session import Envelope
from tests.fixtures.heard import until
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.peers.web.http_peer import CLOSE, DEAF, HANG, RESET, HttpPeer, verdict
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.heard import Heard

CONTENT = b"Subject: x\r\n\r\nbody\r\n"
ENVELOPE = Envelope("192.0.2.7", "app.example", "app", "alice", "a@b.example", ("c@d.example", "e@f.example"))


@asynccontextmanager
async def checker(peer: HttpPeer, **settings: Any) -> AsyncIterator[ContentChecker]:
    made = ContentChecker(ContentCheck.model_validate({"url": peer.url, "timeout": "10s", **settings}))
    yield made
    await made.close()


async def check(peer: HttpPeer, content: bytes = CONTENT, **settings: Any) -> CheckResult | str:
    async with checker(peer, **settings) as made:
        return await made.check(content, ENVELOPE)


async def test_the_request_contains_envelope_and_content() -> None:
    symbols = {"A": {"name": "A", "score": 2.5}}
    async with HttpPeer(verdict("add header", 7.5, symbols=symbols)) as peer:
        recipients = ("c@d.example", "e@f.example")
        envelope = Envelope("192.0.2.7", None, "a\r\nX: y", "ålice", "", recipients, "TLSv1.3", "42")
        async with checker(peer) as made:
            result = await made.check(CONTENT, envelope)
    assert isinstance(result, CheckResult)
    assert (result.action, result.score, result.symbols) == ("add header", 7.5, {"A": 2.5})
    assert result.headers == (("X-Spam", "Yes"), ("X-Spam-Score", "7.50"))
    [request] = peer.requests
    assert (request.line, request.body) == ("POST /checkv2 HTTP/1.1", CONTENT)
    assert request.header("IP") == ["192.0.2.7"]
    assert request.header("Helo") == ["a??X: y"]
    assert request.header("User") == ["ålice"]
    assert request.header("Rcpt") == ["c@d.example", "e@f.example"]
    assert (request.header("TLS-Version"), request.header("Queue-Id")) == (["TLSv1.3"], ["42"])
    assert request.header("From") == request.header("Hostname") == request.header("X") == []


async def test_connections_are_kept_and_replaced_when_the_server_has_closed_them() -> None:
    async with HttpPeer() as peer, checker(peer) as asked:
        for _ in range(3):
            assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        assert peer.connections == 1
        peer.hang_up()
        assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        assert peer.connections == 2


async def test_a_reset_idle_connection_is_replaced() -> None:
    async with HttpPeer() as peer, checker(peer) as asked:
        assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        peer.reset()
        assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        assert peer.connections == 2


async def test_a_connection_closed_instead_of_an_answer_is_replaced_once() -> None:
    async with HttpPeer(verdict(), CLOSE, verdict(), CLOSE) as peer, checker(peer) as asked:
        for _ in range(2):
            assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        assert peer.connections == 2
        assert await asked.check(CONTENT, ENVELOPE) == "down"
        assert len(peer.requests) == 5


@pytest.mark.parametrize(
    "step",
    [
        CLOSE,
        RESET,
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot json!",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n" + b'{"action":"reject"} ',
        verdict("explode", 1.0),
        verdict("reject", float("nan")),
        verdict().replace(b"200 OK", b"500 No"),
        b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (5 * 2**20),
    ],
    ids=["close", "reset", "garbage", "no json", "cut off", "no score", "unknown action", "nan", "500", "endless"],
)
async def test_an_invalid_answer_counts_as_down_and_is_logged_once(step: bytes | str, heard: Heard) -> None:
    async with HttpPeer(step) as peer:
        assert await check(peer) == "down"
    [event] = heard.all("content.unavailable")
    assert event["client"] == "192.0.2.7"


@pytest.mark.parametrize("step", [HANG, DEAF])
async def test_a_silent_server_times_out(step: str, heard: Heard) -> None:
    async with HttpPeer(step) as peer:
        async with asyncio.timeout(PATIENCE):
            assert await check(peer, b"x" * 8 * 2**20, timeout="200ms") == "down"
    [event] = heard.all("content.unavailable")
    assert "0.2 s" in str(event["error"])


async def test_an_unreachable_server_counts_as_down(heard: Heard) -> None:
    async with HttpPeer() as peer:
        pass
    assert await check(peer) == "down"
    assert len(heard.all("content.unavailable")) == 1


async def test_a_proxy_in_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    async with HttpPeer() as peer:
        assert isinstance(await check(peer), CheckResult)


async def test_a_large_message_is_not_checked(heard: Heard) -> None:
    async with HttpPeer() as peer:
        assert isinstance(await check(peer, maxsize=len(CONTENT)), CheckResult)
        assert await check(peer, CONTENT + b"x", maxsize=len(CONTENT)) == "skipped"
    assert len(peer.requests) == 1
    assert heard.all("content.skipped") == [{"client": "192.0.2.7", "size": len(CONTENT) + 1}]


async def test_concurrent_checks_are_limited() -> None:
    async with HttpPeer() as peer, checker(peer, concurrency=3) as asked:
        peer.go.clear()
        checks = [asyncio.create_task(asked.check(CONTENT, ENVELOPE)) for _ in range(10)]
        await until(lambda: peer.at_once == 3, "three checks at once")
        peer.go.set()
        assert all(isinstance(result, CheckResult) for result in await asyncio.gather(*checks))
    assert peer.most_at_once == 3
    assert len(peer.requests) == 10
    assert peer.connections == 3


async def test_a_cancelled_check_frees_its_slot() -> None:
    async with HttpPeer() as peer, checker(peer, concurrency=1) as asked:
        peer.go.clear()
        given_up = asyncio.create_task(asked.check(CONTENT, ENVELOPE))
        await until(lambda: peer.at_once == 1, "one check")
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        peer.go.set()
        assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)


async def test_checks_cancelled_at_any_moment_leave_no_connection() -> None:
    async with HttpPeer() as peer, checker(peer, concurrency=1) as asked:
        for turns in range(40):
            given_up = asyncio.create_task(asked.check(CONTENT, ENVELOPE))
            for _ in range(turns):
                await asyncio.sleep(0)
            for _ in range(2):
                given_up.cancel()
                await asyncio.sleep(0)
            await asyncio.gather(given_up, return_exceptions=True)
        assert isinstance(await asked.check(CONTENT, ENVELOPE), CheckResult)
        await until(lambda: len(peer._writers) <= 1, "all connections but the kept one to be closed")
