"""test_proxy_header — the end of a PROXY header, and invalid headers

Owns: examples for smtpd/connection/proxy_header.py; tests/integration/smtpd/test_proxy_and_xclient.py has the whole.
See: haproxy's proxy-protocol.txt, sections 2.1 and 2.2.
"""

from __future__ import annotations

import pytest

from smtpd.connection.proxy_header import ProxyRefused, header_length, peer

V1 = b"PROXY TCP4 192.0.2.7 192.0.2.1 4321 25\r\n"
V2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 192, 0, 2, 1, 0x10, 0xE1, 0, 25])


@pytest.mark.parametrize("header", [V1, V2])
async def test_the_end_of_a_header_is_found(header: bytes) -> None:
    for cut in range(1, len(header)):
        assert header_length(header[:cut]) is None
    for rest in (b"", b"EHLO x\r\n", header):
        assert header_length(header + rest) == len(header)
    assert await peer(header) == ("192.0.2.7", 4321)


@pytest.mark.parametrize(
    "octets",
    [
        b"EHLO",
        b"PROXX",
        b"P" * 2,
        b"PROXY " + b"x" * 102,
        b"PROXY TCP4 " + b"1" * 95 + b"\r\n",
        V2[:14] + b"\x02\x09",
    ],
)
def test_an_invalid_header_is_refused_at_its_first_wrong_octet(octets: bytes) -> None:
    with pytest.raises(ProxyRefused):
        header_length(octets)


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 192.0.2.7\r\n",
        b"PROXY TCP5 192.0.2.7 192.0.2.1 1 2\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 1 2 3\r\n",
        b"PROXY TCP4 192.0.2.7 192.0.2.1 99999 2\r\n",
        b"PROXY \r\n",
        V2[:12] + b"\x2f" + V2[13:],
        V2[:12] + b"\x11" + V2[13:],
    ],
)
async def test_a_malformed_header_is_refused(header: bytes) -> None:
    with pytest.raises(ProxyRefused):
        await peer(header)
