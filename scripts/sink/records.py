"""records — the extensions that the sink offers, and its record of each message"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

EXTENSIONS = frozenset({"PIPELINING", "8BITMIME", "SMTPUTF8", "SIZE", "ENHANCEDSTATUSCODES"})


@dataclass(frozen=True, slots=True)
class Received:
    """One transaction whose content came whole.

    at: Unix time in seconds. sender, recipients: without angle brackets, as sent. sha256, size: of the
    content with its dots undone, in hex and octets. answered: whether a 250 followed. content: the octets,
    when the sink keeps them.
    """

    at: float
    sender: str
    recipients: tuple[str, ...]
    sha256: str
    size: int
    answered: bool
    content: bytes | None = field(default=None, repr=False)

    def as_json(self) -> str:
        """The record's line in the log, without the content."""
        return json.dumps(
            {
                "at": self.at,
                "sender": self.sender,
                "recipients": self.recipients,
                "sha256": self.sha256,
                "size": self.size,
                "answered": self.answered,
            },
            ensure_ascii=True,
        )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """How the sink presents itself.

    extensions: EHLO keywords to offer, out of EXTENSIONS. greeting, ehlo: codes to answer a connection and
    EHLO with. size_limit: largest message in octets, 0 for any. max_recipients: per transaction, further
    ones get 452. max_connections: at once, further ones get 421. keep_content: hold the octets in memory.
    """

    hostname: str = "sink.example"
    extensions: frozenset[str] = EXTENSIONS
    greeting: int = 220
    ehlo: int = 250
    size_limit: int = 0
    max_recipients: int = 1000  # Postfix smtpd_recipient_limit
    max_connections: int = 1000
    keep_content: bool = False
