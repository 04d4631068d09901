"""trace_headers — the Received header we add, and the hops we count

Owns: the text of our trace header and the loop check. Pure.
Called by: smtpd.receive.
Guarantees: nothing a client says can add a line or a header of its own: its words are cut to printable ASCII and a
    bounded length before they are used.
See: RFC 5321 section 4.4 (time-stamp-line), RFC 3848 and RFC 6531 section 4.3 (the `with` keywords), section 6.3
    (loops).
"""

from __future__ import annotations

import re
from email.utils import format_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

_UNSAFE = re.compile(r"[^A-Za-z0-9.:_\[\]-]")
_WORD_LIMIT = 255
_RECEIVED = re.compile(rb"^received:", re.IGNORECASE | re.MULTILINE)
_END_OF_HEADER = b"\r\n\r\n"


def received(*, helo: str, client: str, hostname: str, protocol: str, message_id: UUID, now: datetime) -> bytes:
    """The time-stamp line, folded, ending with CR LF; `client` is the peer's IP address, `protocol` the keyword."""
    literal = f"IPv6:{client}" if ":" in client else client
    lines = (
        f"Received: from {_word(helo)} ([{_word(literal)}])",
        f"\tby {_word(hostname)} with {protocol}",
        f"\tid {message_id}; {format_datetime(now)}",
    )
    return "\r\n".join(lines).encode("ascii") + b"\r\n"


def with_keyword(*, extended: bool, tls: bool, authenticated: bool, smtputf8: bool) -> str:
    """SMTP, ESMTP, ESMTPS, ESMTPSA, UTF8SMTP … (RFC 3848, RFC 6531 section 4.3)."""
    if not extended:
        return "SMTP"
    base = "UTF8SMTP" if smtputf8 else "ESMTP"
    return base + ("S" if tls else "") + ("A" if authenticated else "")


def hops(content: bytes) -> int:
    """How many servers a message has passed: the Received fields of its header."""
    end = 0 if content.startswith(b"\r\n") else content.find(_END_OF_HEADER)
    return len(_RECEIVED.findall(content if end < 0 else content[:end]))


def _word(text: str) -> str:
    return _UNSAFE.sub("?", text[:_WORD_LIMIT]) or "unknown"
