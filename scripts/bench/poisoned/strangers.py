"""strangers — the outside world of a poisoned run: a name server, a healthy next hop, and hosts that never greet

Owns: a name server that derives its answer from the name asked for; a next hop that replies at once and records when it
    accepted each recipient; hosts that accept connections and send nothing. All hosts use the port of the next hop, as
    exchangers share one port.
Guarantees: everything is in one process and reads one clock.
See: RFC 1035 section 4.1 (messages), RFC 5321.
"""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from time import perf_counter
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

DEAD: Final = "127.0.66.1"  # first address of the hosts that never greet; all dN.dead.test share this one
MANY: Final = 500  # hosts after it that never greet, which the domains dN.many.test share
_A, _MX = 1, 15
_TTL: Final = 300
_ANSWER, _NO_SUCH_NAME = 0x8180, 0x8183
#: The SOA record of the zone `test`: negative answers too are cached for _TTL seconds (RFC 2308 section 5).
_SOA: Final = (
    b"\4test\0" + struct.pack("!HHIH", 6, 1, _TTL, 22) + b"\0\0" + struct.pack("!IIIII", 1, 3600, 600, 86400, _TTL)
)
_REPLIES: Final = {b"DATA": b"354 go on\r\n", b"QUIT": b"221 bye\r\n", b"EHLO": b"250-hop.test\r\n250 PIPELINING\r\n"}


@dataclass(slots=True)
class Outside:
    """The running servers; `arrived` has the time of the next hop's 250 for each recipient."""

    port: int = 0
    dns: int = 0
    greeted: int = 0  # connections to hosts that never greet
    arrived: dict[bytes, float] = field(default_factory=dict)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to the healthy next hop."""
        writer.write(b"220 hop.test\r\n")
        recipients: list[bytes] = []
        while line := await reader.readline():
            verb = line[:4].upper()
            if verb == b"RCPT":
                recipients.append(line[line.index(b"<") + 1 : line.index(b">")])
            writer.write(_REPLIES.get(verb, b"250 ok\r\n"))
            if verb == b"DATA":
                await reader.readuntil(b"\r\n.\r\n")
                writer.write(b"250 taken\r\n")
                self.arrived.update(dict.fromkeys(recipients, perf_counter()))
                recipients.clear()
            elif verb == b"QUIT":
                break
        writer.close()

    async def never_greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to a host that never greets."""
        self.greeted += 1
        try:
            while await reader.read(1024):
                pass
        finally:
            writer.close()


@asynccontextmanager
async def outside() -> AsyncIterator[Outside]:
    """All servers, for the block."""
    here = Outside()
    async with AsyncExitStack() as stack:
        well = await asyncio.start_server(here.serve, "127.0.0.1", 0)
        stack.callback(well.close)
        here.port = well.sockets[0].getsockname()[1]
        for number in range(MANY + 1):
            ill = await asyncio.start_server(here.never_greet, _ill(number), here.port)
            stack.callback(ill.close)
        names, _ = await asyncio.get_running_loop().create_datagram_endpoint(Names, local_addr=("127.0.0.1", 0))
        stack.callback(names.close)
        here.dns = names.get_extra_info("sockname")[1]
        yield here


def _ill(number: int) -> str:
    return str(IPv4Address(DEAD) + number)


class Names(asyncio.DatagramProtocol):
    """goodN.test: the next hop. dN.dead.test: one host for all. dN.many.test: one of many. sN.test: no answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one query."""
        end = data.index(b"\0", 12)
        labels, at = list[bytes](), 12
        while at < end:
            labels.append(data[at + 1 : at + 1 + data[at]].lower())
            at += 1 + data[at]
        [kind] = struct.unpack("!H", data[end + 1 : end + 3])
        if labels[0][:1] == b"s" and labels[0][1:].isdigit():
            return
        found = _found(labels, kind)
        answers = _SOA if found is None else b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, _TTL, len(found)) + found
        code = _ANSWER if found is not None or labels[0] == b"mx" else _NO_SUCH_NAME
        header = data[:2] + struct.pack("!HHHHH", code, 1, int(found is not None), int(found is None), 0)
        self._transport.sendto(header + data[12 : end + 5] + answers, addr)


def _found(labels: list[bytes], kind: int) -> bytes | None:
    """The data of the record; None if there is none."""
    if kind == _MX and labels[-1] == b"test" and labels[0] != b"_mta-sts":
        if labels[0].startswith(b"good"):
            host = [b"mx", b"good", b"test"]
        elif labels[-2] == b"dead":
            host = [b"mx", b"dead", b"test"]
        else:
            host = [b"mx", b"h%d" % (int(labels[0][1:]) % MANY), b"many", b"test"]
        return struct.pack("!H", 10) + b"".join(bytes([len(label)]) + label for label in host) + b"\0"
    if kind == _A and labels[0] == b"mx":
        if labels[1] == b"good":
            return IPv4Address("127.0.0.1").packed
        return IPv4Address(DEAD if labels[1] == b"dead" else _ill(1 + int(labels[1][1:]))).packed
    return None
