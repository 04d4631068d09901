"""test_metrics_server — the metrics server with real sockets, and clients that are slow, incorrect, many or gone

Owns: proofs that the small HTTP server is bounded for any client, and that it ends cleanly.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from shared.config.metrics import ListenAddress
from shared.errors import ListenFailed
from shared.observe import metrics_server
from shared.observe.metrics_server import MetricsServer, Page
from tests.fixtures.heard import Heard, until
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GET = b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n"


async def page() -> Page:
    return Page(b"content\n")


async def broken() -> Page:
    raise RuntimeError("a secret")


@asynccontextmanager
async def answering() -> AsyncIterator[tuple[MetricsServer, int]]:
    """A server as long as the block lasts, and its port."""
    server = MetricsServer({"/page": page, "/broken": broken})
    bound = await server.open(ListenAddress("127.0.0.1", 0), "metrics.listen")
    try:
        yield server, int(bound.rpartition(":")[2])
    finally:
        await server.close()


async def said(port: int, octets: bytes) -> bytes:
    """Everything that is answered to these octets, until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(octets)
    try:
        async with asyncio.timeout(PATIENCE):
            # Content-Length marks the end of an answer; the server waits for us to close.
            answer = b""
            while more := await reader.read(65536):
                answer += more
            return answer
    finally:
        writer.close()


def status(answer: bytes) -> bytes:
    return answer.split(b"\r\n")[0]


async def test_a_page_is_answered() -> None:
    async with answering() as (_, port):
        answer = await said(port, GET)
        assert status(answer) == b"HTTP/1.1 200 OK"
        assert answer.endswith(b"\r\n\r\ncontent\n")


async def test_only_the_first_of_pipelined_requests_is_answered() -> None:
    async with answering() as (_, port):
        assert (await said(port, GET * 20)).count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    ("octets", "first"),
    [
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n", b"404 Not Found"),
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400 Bad Request"),
        (
            b"POST /page HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100_000,
            b"405 Method Not Allowed",
        ),
        (b"GET /page HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n", b"431 Request Header Fields Too Large"),
        (b"y" * 20_000, b"431 Request Header Fields Too Large"),
    ],
    ids=["unknown", "nonsense", "tls", "body", "long field", "endless line"],
)
async def test_an_invalid_request_is_refused_and_the_next_one_served(octets: bytes, first: bytes) -> None:
    async with answering() as (_, port):
        assert status(await said(port, octets)) == b"HTTP/1.1 " + first
        assert status(await said(port, GET)) == b"HTTP/1.1 200 OK"


async def test_a_page_that_raises_is_500_without_details(heard: Heard) -> None:
    async with answering() as (_, port):
        answer = await said(port, GET.replace(b"/page", b"/broken"))
        assert status(answer) == b"HTTP/1.1 500 Internal Server Error"
        assert b"secret" not in answer
        [failed] = heard.all("metrics.failed")
        assert failed["page"] == "/broken"


async def test_a_silent_client_gets_408_and_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "_PATIENCE", 0.2)
    async with answering() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert status(await reader.readline()) == b"HTTP/1.1 408 Request Timeout"
        # It does not close either: the server does.
        await until(lambda: not server._serving)
        writer.close()


async def test_requests_over_the_limit_get_503() -> None:
    async with answering() as (server, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        await until(lambda: len(server._serving) == 16)
        assert status(await said(port, GET)) == b"HTTP/1.1 503 Service Unavailable"
        for _, writer in silent:
            writer.close()
        await until(lambda: not server._serving)
        assert status(await said(port, GET)) == b"HTTP/1.1 200 OK"


async def test_connections_over_the_hard_limit_are_cut() -> None:
    async with answering() as (server, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(32)]
        await until(lambda: len(server._serving) == 32)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        assert len(server._serving) == 32
        for each in (writer, *(writer for _, writer in silent)):
            each.close()
        await until(lambda: not server._serving)


async def test_a_disconnected_client_leaves_no_task() -> None:
    async with answering() as (server, port):
        for octets in (b"", b"GET /pa", GET):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(octets)
            writer.transport.abort()
        await until(lambda: not server._serving)


async def test_a_reset_while_the_page_is_made_is_not_a_fault() -> None:
    asked, gone, faults = asyncio.Event(), asyncio.Event(), list[str]()

    async def slow() -> Page:
        asked.set()
        await gone.wait()
        return Page(b"content\n")

    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["message"]))
    async with answering() as (server, port):
        server._pages = {"/page": slow}
        client = socket.create_connection(("127.0.0.1", port))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close by a reset
        client.sendall(GET)
        await asked.wait()
        [task] = server._serving
        client.close()
        await asyncio.sleep(0.1)  # the reset itself cannot be observed here
        gone.set()
        await until(lambda: not server._serving)
        assert task.exception() is None
    assert faults == []


async def test_closing_cuts_open_connections() -> None:
    async with answering() as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: len(server._serving) == 1)
        await server.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()


async def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ListenFailed, match=rf"^metrics\.listen: 127\.0\.0\.1:{port}: cannot listen: ") as raised:
            await MetricsServer({}).open(ListenAddress("127.0.0.1", port), "metrics.listen")
        assert "\n" not in str(raised.value)


async def test_a_port_over_65535_is_one_clear_line() -> None:
    with pytest.raises(ListenFailed, match=r"^metrics\.listen: \[::1\]:65536: cannot listen: "):
        await MetricsServer({}).open(ListenAddress("::1", 65536), "metrics.listen")
