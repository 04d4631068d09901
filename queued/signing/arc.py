"""arc — seals a forwarded message, so that later servers can see our findings about its signatures

Owns: the choice of messages to seal, and the three fields of an ARC set.
Guarantees: pure but for the key. Only a message with an Authentication-Results field of ours is sealed: without it we
    have nothing to vouch for. That field decides the status of a chain (cv=); where it says nothing about an existing
    chain, the message is not sealed, and a chain that was closed as failed stays closed.
Raises: dkim.DKIMException for a header that RFC 5322 does not allow.
See: RFC 8617 sections 4.1 (the fields), 5.1 (sealing) and 5.1.1 (what a seal covers); RFC 8601 section 2.2
    (Authentication-Results)
Bugs: a client that may send us mail with an Authentication-Results field in our name can make us vouch for it, unless
    the content filter removes such fields, as rspamd does (RFC 8601 section 5).
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import dkim
from dkim.canonicalization import CanonicalizationPolicy

from queued.signing.sign_content import covered
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from queued.signing.keys import PrivateKey

type Field = tuple[bytes, bytes]  # name and value, the value with its line end
type Status = Literal["none", "pass", "fail"]

RESULTS: Final = b"authentication-results"  # the field, in lower case, without which nothing is sealed
_RELAXED: Final = CanonicalizationPolicy.from_c_value(b"relaxed/relaxed")
_AAR, _AMS, _SEAL = b"ARC-Authentication-Results", b"ARC-Message-Signature", b"ARC-Seal"
_ORDER: Final = (_AAR.lower(), _AMS.lower(), _SEAL.lower())  # RFC 8617 section 5.1.1
_MOST_SETS: Final = 50  # RFC 8617 section 4.2.1
_INSTANCE: Final = re.compile(rb"(?:^|;)[ \t\r\n]*i[ \t\r\n]*=[ \t\r\n]*(\d{1,3})[ \t\r\n]*(?:;|$)", re.IGNORECASE)
_CHAIN: Final = re.compile(rb"(?:^|;)[ \t\r\n]*cv[ \t\r\n]*=[ \t\r\n]*(\w+)", re.IGNORECASE)
_VERDICT: Final = re.compile(r";\s*arc(?:\s*/\s*\d+)?\s*=\s*(\w+)")
_WORD: Final = re.compile(r"\s*([^\s;]+)")
_OURS: Final = (b"dkim-signature",)  # signed besides what DKIM signs (RFC 8617 section 4.1.2)


class Seal(NamedTuple):
    """The sealer. server: the name by which our fields Authentication-Results begin (authserv-id)."""

    server: str
    domain: str
    selector: str
    key: PrivateKey


class Chain(NamedTuple):
    """The existing seals: the fields of each set, oldest first, and the newest one's status of those before it."""

    sets: tuple[tuple[Field, Field, Field], ...]
    closed: bool


class Sealing(NamedTuple):
    """The input of a seal: our results, each from its first semicolon, and the chain with its status."""

    results: tuple[str, ...]
    chain: Chain
    status: Status


def fields(header: bytes, digest: bytes, seal: Seal, seconds: int) -> bytes | None:
    """The ARC set for a message, to be sent before everything else; None when it is not to be sealed.

    header: up to its empty line, our DKIM signatures included. digest: SHA-256 of the body in relaxed form. seconds:
    the time, since 1970.
    """
    message = dkim.DKIM(header, signature_algorithm=b"ed25519-sha256")
    sealing = read_sealing(message.headers, seal.server)
    return None if isinstance(sealing, str) else _make(message, digest, seal, seconds, sealing)


def read_sealing(headers: Sequence[Field], server: str) -> Sealing | str:
    """The input of the seal of a message with this header; where it is not sealed, why."""
    found = tuple(payload for name, value in headers if (payload := _ours(name, value, server)) is not None)
    chain = read_chain(headers)
    if not found:
        return f"no Authentication-Results of {server}"
    if chain is None:
        return "the seals it has are incomplete"
    if chain.closed:
        return "its chain of seals was closed as failed"
    if len(chain.sets) >= _MOST_SETS:
        return f"it has {how_many(len(chain.sets), 'seal')}"
    status = _status(found, chain)
    return (
        "our Authentication-Results has no arc= result for the existing seals"
        if status is None
        else Sealing(found, chain, status)
    )


def read_chain(headers: Sequence[Field]) -> Chain | None:
    """The sets in a header; None where a set is incomplete or there twice, so that none can follow."""
    named: dict[tuple[int, bytes], Field] = {}
    for name, value in headers:
        if name.lower() in _ORDER:
            instance = _INSTANCE.search(value)
            key = int(instance[1]) if instance else 0, name.lower()
            if not key[0] or key in named:
                return None
            named[key] = name, value
    most = max((number for number, _ in named), default=0)
    try:
        sets = [tuple(named[number, name] for name in _ORDER) for number in range(1, most + 1)]
    except KeyError:
        return None
    said = _CHAIN.search(sets[-1][2][1]) if sets else None
    return Chain(tuple((a, b, c) for a, b, c in sets), said is not None and said[1].lower() == b"fail")


def _status(found: Sequence[str], chain: Chain) -> Status | None:
    """The status of the chain by our own results; None when they say nothing of an existing chain."""
    if not chain.sets:
        return "none"
    said = [verdict[1].lower() for payload in found for verdict in _VERDICT.finditer(_plain(payload))]
    if not said or set(said) - {"pass", "fail"}:
        return None
    return "pass" if said == ["pass"] else "fail"


def _make(message: dkim.DKIM, digest: bytes, seal: Seal, seconds: int, given: Sealing) -> bytes:
    """The three fields, the seal first."""
    found, chain, status = given
    number = str(len(chain.sets) + 1).encode()
    common = [
        (b"a", seal.key.algorithm.encode()),
        (b"d", seal.domain.encode()),
        (b"s", seal.selector.encode()),
        (b"t", str(seconds).encode()),
    ]
    last = (b"b", b"0" * 60)  # so long that b= begins a line of its own, as dkimpy's `sign` does it
    message.hasher = hashlib.sha256
    results = "".join(found) or "; none"
    aar: Field = (
        _AAR,
        b" i=" + number + b"; " + seal.server.encode() + results.encode("utf-8", "surrogateescape") + b"\r\n",
    )
    present = [name.lower() for name, _ in message.headers]
    names = [*covered(present), *(name for name in present if name in _OURS)]
    signed = [
        (b"i", number),
        *common,
        (b"c", b"relaxed/relaxed"),
        (b"h", b": ".join(names)),
        (b"bh", base64.b64encode(digest)),
        last,
    ]
    ams: Field = _AMS, b" " + message.gen_header(signed, names, _RELAXED, _AMS, seal.key)
    # A seal covers all sets, oldest first, or its own alone when the chain has failed (RFC 8617 section 5.1.2). dkimpy
    # takes fields of one name from below, so the oldest is last.
    before = () if status == "fail" else chain.sets
    message.headers = [ams, aar, *(each for sealed in reversed(before) for each in reversed(sealed))]
    covers = [*(name for _ in before for name in _ORDER), _AAR.lower(), _AMS.lower()]
    sealing = [(b"i", number), *common, (b"cv", status.encode()), last]
    value: bytes = message.gen_header(sealing, covers, _RELAXED, _SEAL, seal.key)
    return _SEAL + b": " + value + b"".join(name + b":" + text for name, text in (ams, aar))


def _ours(name: bytes, value: bytes, server: str) -> str | None:
    """The results in a field Authentication-Results that our server wrote, from the first semicolon; else None."""
    if name.lower() != RESULTS:
        return None
    text = value.decode("utf-8", "surrogateescape").rstrip()
    lead, semicolon, _ = _plain(text).partition(";")
    word = _WORD.match(lead)
    if word is None or not semicolon or word[1].lower() != server.lower():
        return None
    return text[len(lead) :]


def _plain(text: str) -> str:
    """The text with comments and quoted text as spaces of the same length."""
    out, depth, quoted, index = list(text), 0, False, 0
    while index < len(text):
        mark = text[index]
        hidden = depth > 0 or quoted
        if mark == "\\" and hidden and index + 1 < len(text):
            out[index : index + 2] = "  "
            index += 2
            continue
        if mark == '"' and not depth:
            quoted, hidden = not quoted, True
        elif not quoted and mark == "(":
            depth, hidden = depth + 1, True
        elif not quoted and mark == ")" and depth:
            depth -= 1
        if hidden and mark not in "\r\n":
            out[index] = " "
        index += 1
    return "".join(out)
