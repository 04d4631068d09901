"""trace_headers — the header fields that we put in front of a message

Owns: the text of our Received field, and of Date, Message-ID and From where they are missing and must be added. Pure.
Guarantees: no text of a client, a user's name, a certificate or the DNS can add a line, a field or a comment of its
    own: every word is cut to safe printable ASCII and a bounded length before it is used. Only an address that was
    accepted may go beyond ASCII, and only with SMTPUTF8. The authenticated user is named only if the configuration says
    so.
See: RFC 5321 section 4.4 (time-stamp-line), RFC 3848 and RFC 6531 section 4.3 (the `with` keywords), RFC 6710 section 7
    (PRIORITY), RFC 6409 section 8 (what a submission server may add).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import format_datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from uuid import UUID

    from shared.mail.message import Address

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9.:_\[\]-]")
_UNSAFE_USER: Final = re.compile(r"[^A-Za-z0-9.:_\[\]@+=-]")
_UNSAFE_ADDRESS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff<>]")
_WORD_LIMIT: Final = 255
# Whole fields of printable ASCII, folded or not (RFC 5322 section 2.2).
_FIELDS: Final = re.compile(rb"(?:[!-9;-~]+:[\t -~]*\r\n(?:[ \t][\t -~]*\r\n)*)*")


@dataclass(frozen=True, slots=True)
class Seen:
    """How a message came in: what Received tells of it."""

    helo: str
    client: str  # IP address
    hostname: str  # ours
    extended: bool = True  # EHLO
    smtputf8: bool = False
    name: str | None = None  # the client's reverse name
    tls: tuple[str, str, int] | None = None  # version, cipher, bits
    certificate: str | None = None  # the subject of a verified client certificate
    authenticated: bool = False
    user: str | None = None  # only if it is to be shown
    recipient: Address | None = None  # only if it is to be shown
    priority: int | None = None  # as asked for by MT-PRIORITY
    protocol: str | None = None  # where it was not SMTP or its kin


def received(seen: Seen, message_id: UUID, now: datetime) -> bytes:
    """The time-stamp line, folded, ending with CR LF."""
    literal = f"IPv6:{seen.client}" if ":" in seen.client else seen.client
    name = f"{_word(seen.name)} " if seen.name else ""
    keyword = seen.protocol or with_keyword(
        extended=seen.extended,
        tls=seen.tls is not None,
        authenticated=seen.authenticated,
        smtputf8=seen.smtputf8,
    )
    lines = [f"Received: from {_word(seen.helo)} ({name}[{_word(literal)}])"]
    if seen.tls is not None:
        version, cipher, bits = seen.tls
        lines.append(f"\t(using {_word(version)} with cipher {_word(cipher)} ({bits} bits))")
    if seen.certificate is not None:
        lines.append(f"\t(client certificate {_word(seen.certificate)} verified OK)")
    if seen.user is not None:
        lines.append(f"\t(authenticated as {_UNSAFE_USER.sub('?', seen.user[:_WORD_LIMIT])})")
    lines += [f"\tby {_word(seen.hostname)} with {keyword}", f"\tid {message_id}"]
    if seen.recipient is not None and (shown := _address(seen.recipient, smtputf8=seen.smtputf8)):
        lines.append(f"\tfor <{shown}>")
    if seen.priority is not None:
        lines[-1] += f" PRIORITY {seen.priority}"
    lines[-1] += f"; {_date(now)}"
    return "\r\n".join(lines).encode() + b"\r\n"


def missing(
    names: Collection[bytes], sender: Address | None, message_id: UUID, hostname: str, now: datetime, *, smtputf8: bool
) -> bytes:
    """Date, Message-ID and From, as far as `names`, the fields there are, lack them (RFC 6409 section 8).

    A From is made of the sender, but not of the null sender; a resent message (RFC 5322 section 3.6.6) has its own.
    """
    fields = []
    if b"date" not in names:
        fields.append(f"Date: {_date(now)}\r\n")
    if b"message-id" not in names:
        fields.append(f"Message-ID: <{own_msgid(message_id, hostname)}>\r\n")
    if sender is not None and adds_from(names, sender, smtputf8=smtputf8):
        fields.append(f"From: <{_address(sender, smtputf8=smtputf8)}>\r\n")
    return "".join(fields).encode()


def adds_from(names: Collection[bytes], sender: Address | None, *, smtputf8: bool) -> bool:
    """Whether `missing` makes a From."""
    return b"from" not in names and sender is not None and bool(_address(sender, smtputf8=smtputf8))


def own_msgid(message_id: UUID, hostname: str) -> str:
    """The Message-ID of a message that has none, without angle brackets."""
    return f"{message_id}@{_word(hostname)}"


def are_fields(lines: bytes) -> bool:
    """Whether these are whole header fields and nothing else: no end of the header, and no line that is none."""
    return _FIELDS.fullmatch(lines) is not None


def with_keyword(*, extended: bool, tls: bool, authenticated: bool, smtputf8: bool) -> str:
    """SMTP, ESMTP, ESMTPS, ESMTPSA, UTF8SMTP … (RFC 3848, RFC 6531 section 4.3)."""
    if not extended:
        return "SMTP"
    base = "UTF8SMTP" if smtputf8 else "ESMTP"
    return base + ("S" if tls else "") + ("A" if authenticated else "")


@lru_cache(maxsize=1024)  # our own name in every field, and those of clients that come again
def _word(text: str) -> str:
    return _UNSAFE.sub("?", text[:_WORD_LIMIT]) or "unknown"


@lru_cache(maxsize=2)  # of all messages of a second
def _date(second: datetime) -> str:
    return format_datetime(second)


def _address(address: Address, *, smtputf8: bool) -> str | None:
    """An accepted address in the form for angle brackets; None if it has none."""
    text = str(address)
    return None if _UNSAFE_ADDRESS.search(text) or not (smtputf8 or text.isascii()) else text
