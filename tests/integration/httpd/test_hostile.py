"""test_hostile — requests that are too large, too slow, compressed or no HTTP cost httpd little and get a clear answer

Owns: proofs about httpd/server/protocol.py and httpd/gate.py.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.fixtures.daemons.api import Api

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System

PATH = f"/v1/messages/{uuid4()}"
HOST = b"Host: a\r\n"


def status(answer: bytes) -> int:
    """The status of a raw answer, which is a problem."""
    match = re.match(rb"HTTP/1\.1 (\d{3}) ", answer)
    assert match, answer[:200]
    assert b"application/problem+json" in answer.lower()
    return int(match[1])


async def test_what_is_not_http_is_a_bad_request(api: Api) -> None:
    for octets in (b"EHLO a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9\r\n\r\n"):
        assert status(await api.raw(octets)) == 400


async def test_a_head_that_is_too_large_is_431_in_one_piece_or_many(api: Api) -> None:
    large = b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 40_000 + b"\r\n\r\n"
    assert status(await api.raw(large)) == 431
    assert status(await api.raw(b"GET /" + b"a" * 40_000)) == 431
    assert status(await api.raw(b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: a\r\n" % n for n in range(10_000)))) == 431


async def test_a_slow_head_and_a_slow_body_end_their_connection(system: System) -> None:
    daemon = await system.httpd(timeout={"head": "1s", "body": "1s"})
    async with Api(system, daemon) as api:
        key = (await api.key("ann", "viewer", kind="person")).encode()
        slow = [
            b"GET / HTT",
            b"GET /x HTTP/1.1\r\n" + HOST + b"Authorization: Bearer " + key,
        ]
        assert [status(await api.raw(each)) for each in slow] == [408, 408]
        assert await api.raw(b"") == b""


async def test_connections_beyond_the_limit_get_503(system: System) -> None:
    async with Api(system, await system.httpd(limits={"connections": 2})) as api:
        held = [await asyncio.open_connection(*api.daemon.address) for _ in range(2)]
        for _, writer in held:
            writer.write(b"GET / HTTP/1.1\r\n" + HOST)
            await writer.drain()
        answer = await api.raw(b"")
        assert status(answer) == 503
        assert b"Retry-After" in answer
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize("path", [b"/v1/messages/%00", b"/v1/messages/%ff", b"/v1/%2e%2e/x", b"/" + b"%25" * 1000])
async def test_strange_paths_are_no_fault(api: Api, path: bytes) -> None:
    key = (await api.key("ann", "viewer", kind="person")).encode()
    head = b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\nAuthorization: Bearer " + key
    assert status(await api.raw(head + b"\r\n\r\n")) in {404, 422}


@pytest.mark.parametrize(
    "path",
    ["/console/held/{}", "/console/queue/{}", "/console/held/{}/block", "/v1/quarantine/mail/{}", "/v1/messages/{}"],
)
async def test_a_number_of_more_digits_than_int_reads_is_no_fault(api: Api, path: str) -> None:
    key = (await api.key("ann", "operator", kind="person")).encode()
    head = b"GET " + path.format("9" * 5000).encode() + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n"
    answer = await api.raw(head + b"Authorization: Bearer " + key + b"\r\n\r\n")
    assert answer.split()[1] in {b"404", b"422"}, answer[:200]


async def test_keys_with_any_octets_are_refused_and_never_looked_up(api: Api) -> None:
    for shown in (b"\xff\xfe", b"pb_" + b"a" * 5000, b"pb_0123456789ab_" + b"\xc3\xa4" * 43, b"'; DROP TABLE x;--"):
        head = (
            b"GET " + PATH.encode() + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\nAuthorization: Bearer " + shown
        )
        assert status(await api.raw(head + b"\r\n\r\n")) in {400, 401}
