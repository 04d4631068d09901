"""careful_dns — lets dnspython read only those answers of name servers that it reads in milliseconds

Owns: the sockets of questions to DNS, and the bounds of an answer: octets, records, and labels of a name.
Guarantees: work for an answer is bounded before it is parsed. Parsing takes time in proportion to the number of records
    and to the square of the labels of their names: 64 KiB of MX records whose names have 120 labels each stopped the
    event loop for ten seconds. An answer by UDP beyond the bounds counts as truncated, so that a datagram of somebody
    else ends no question; one by TCP is a failure of the name server. A question that is cancelled leaves no socket.
Raises: TooMuch from a socket of TCP.
See: RFC 1035 sections 4.1 (messages, and names within them) and 4.2 (UDP and TCP).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final

import dns.asyncbackend
import dns.exception
import dns.rdatatype
from dns._asyncbackend import Backend, DatagramSocket, Socket, StreamSocket

from shared.outcome import outcome_of

_LONGEST: Final = 16_384  # octets by TCP; the largest honest answers have about five thousand
_RECORDS: Final = 100  # of which fifty are used
_LABELS: Final = 20  # of a name, and pointers on the way; honest ones have about ten
_ANY: Final = 128  # the same of our own question
_HEADER: Final = 12  # octets
_COUNTS: Final = (6, 8, 10)  # where the header has the numbers of answers, authorities and others
_FIXED: Final = 10  # octets of a record between its name and its data
_POINTER: Final = 0xC0
_TRUNCATED: Final = 0x02  # in the third octet
# Where the names are in the data of those records that have any and may be in an answer.
_NAMES: Final = {
    int(dns.rdatatype.NS): 0,
    int(dns.rdatatype.CNAME): 0,
    int(dns.rdatatype.SOA): 0,
    int(dns.rdatatype.PTR): 0,
    int(dns.rdatatype.MX): 2,
    int(dns.rdatatype.SRV): 6,
    int(dns.rdatatype.DNAME): 0,
    int(dns.rdatatype.RRSIG): 18,
}


class TooMuch(dns.exception.FormError):
    """The answer would take long to read."""

    msg = "the answer is larger than any honest one"


def is_too_much(wire: bytes) -> bool:
    """Whether a message is beyond the bounds. What is malformed is left for dnspython to refuse, at its place."""
    records = sum(int.from_bytes(wire[at : at + 2], "big") for at in _COUNTS)
    if records > _RECORDS:
        return True
    try:
        at = _HEADER
        for _ in range(int.from_bytes(wire[4:6], "big")):
            at = _after(wire, at, _ANY) + 4
        for _ in range(records):
            at = _after(wire, at)
            kind = int.from_bytes(wire[at : at + 2], "big")
            size = int.from_bytes(wire[at + 8 : at + 10], "big")
            at += _FIXED
            if (begins := _NAMES.get(kind)) is not None and size > begins:
                end = _after(wire, at + begins)
                if kind == dns.rdatatype.SOA:
                    _after(wire, end)
            at += size
    except TooMuch:
        return True
    except IndexError:
        return False
    return False


def _after(wire: bytes, at: int, most: int = _LABELS) -> int:
    """Where the name that begins here ends; TooMuch for one of too many labels, IndexError where it ends nowhere."""
    end, steps = 0, 0
    while (length := wire[at]) != 0:
        steps += 1
        if steps > most:
            raise TooMuch
        if length >= _POINTER:
            end = end or at + 2
            at = (length & ~_POINTER) << 8 | wire[at + 1]
        else:
            at += length + 1
    return end or at + 1


def _cut(wire: bytes) -> bytes:
    """The same message as a name server sends it whose answer does not fit into a datagram."""
    try:
        end = _after(wire, _HEADER, _ANY) + 4
    except (TooMuch, IndexError):
        return b""  # it answers no question of ours
    return wire[:2] + bytes((wire[2] | _TRUNCATED, wire[3])) + b"\0\1" + bytes(6) + wire[_HEADER:end]


class CarefulBackend(Backend):
    """asyncio's sockets, as dnspython uses them."""

    def __init__(self) -> None:
        self._asyncio: Any = dns.asyncbackend.get_backend("asyncio")

    def name(self) -> str:
        """As dnspython calls it."""
        return "asyncio"

    async def make_socket(self, af: int, socktype: int, *asked: Any, **named: Any) -> Socket:
        """A socket whose answers are bounded."""
        made = self._asyncio.make_socket(af, socktype, *asked, **named)
        if socktype != socket.SOCK_DGRAM:
            return _Stream(await made)
        making = asyncio.ensure_future(made)
        try:
            return _Datagrams(await outcome_of(making))
        except asyncio.CancelledError:
            await (await making).close()  # uvloop leaves it open; it takes one turn of the event loop
            raise

    def datagram_connection_required(self) -> bool:
        """As asyncio has it."""
        return bool(self._asyncio.datagram_connection_required())

    async def sleep(self, interval: float) -> None:
        """Wait so many seconds."""
        await self._asyncio.sleep(interval)


class _Datagrams(DatagramSocket):
    def __init__(self, made: Any) -> None:
        super().__init__(made.family, made.type)
        self._made = made

    async def sendto(self, what: bytes, destination: Any, timeout: float | None) -> int:  # noqa: ASYNC109 - dnspython's
        return int(await self._made.sendto(what, destination, timeout))

    async def recvfrom(self, size: int, timeout: float | None) -> tuple[bytes, Any]:  # noqa: ASYNC109 - dnspython's
        wire, sender = await self._made.recvfrom(size, timeout)
        return _cut(wire) if is_too_much(wire) else wire, sender

    async def close(self) -> None:
        await self._made.close()

    async def getpeername(self) -> Any:
        return await self._made.getpeername()

    async def getsockname(self) -> Any:
        return await self._made.getsockname()


class _Stream(StreamSocket):
    """One answer: two octets that say how long it is, and so many."""

    def __init__(self, made: Any) -> None:
        super().__init__(made.family, made.type)
        self._made = made
        self._heard = bytearray()

    async def sendall(self, what: bytes, timeout: float | None) -> None:  # noqa: ASYNC109 - dnspython's
        await self._made.sendall(what, timeout)

    async def recv(self, size: int, timeout: float | None) -> bytes:  # noqa: ASYNC109 - dnspython's
        heard: bytes = await self._made.recv(size, timeout)
        self._heard += heard
        length = int.from_bytes(self._heard[:2], "big")
        if length > _LONGEST or (len(self._heard) == 2 + length and is_too_much(bytes(self._heard[2:]))):
            raise TooMuch
        return heard

    async def close(self) -> None:
        await self._made.close()

    async def getpeername(self) -> Any:
        return await self._made.getpeername()

    async def getsockname(self) -> Any:
        return await self._made.getsockname()
