"""ledger — accounts for every message: accepted, delivered, lost, duplicated, altered

Owns: the comparison of submitted mail with arrived mail. Pure.
Guarantees: the unit is one recipient of one message, named by a sender address that is used once and the recipient.
    Content is compared by its SHA-256 without our own trace header. A header that no empty line ends is given one
    (`phases.data.endofheader`), which does not count as an alteration; nothing else may be added.
See: RFC 5321 section 4.4 for the header; the crash table in sql/README.md for the allowed figures.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field

from shared.mail.domain import comparable

# The first header field with its folded lines: ours, if it is a Received.
_OUR_HEADER = re.compile(rb"Received: [^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*")

# Fields, each with its folded lines, as far as they go.
_FIELDS = re.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*")

type Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Account:
    """The figures of a run, in recipients."""

    accepted: int
    delivered: int
    lost: int
    duplicated: int
    altered: int
    ended: int = 0  # given the empty line that their header lacked, and otherwise as they were

    @property
    def clean(self) -> bool:
        """Whether everything accepted arrived once and as it was."""
        return self.lost == self.duplicated == self.altered == 0 and self.accepted == self.delivered

    def __str__(self) -> str:
        return (
            f"accepted={self.accepted} delivered={self.delivered} lost={self.lost} "
            f"duplicated={self.duplicated} altered={self.altered}"
        )


@dataclass(slots=True)
class Ledger:
    """Collects both sides."""

    accepted: dict[Key, str] = field(default_factory=dict)
    arrived: Counter[Key] = field(default_factory=Counter)
    altered: set[Key] = field(default_factory=set)
    ended: set[Key] = field(default_factory=set)
    unended: dict[Key, str] = field(default_factory=dict)  # the form of a message whose header no empty line ends
    early: dict[Key, list[str]] = field(default_factory=dict)

    def accept(self, sender: str, recipient: str, content: bytes) -> None:
        """A 250 came for this recipient; `content` is what was submitted."""
        key = (spelling(sender), spelling(recipient))
        self.accepted[key] = hashlib.sha256(content).hexdigest()
        if (with_end := _ended(content)) is not None:
            self.unended[key] = hashlib.sha256(with_end).hexdigest()
        for digest in self.early.pop(key, ()):
            self._arrive(key, digest)

    def arrive(self, sender: str, recipient: str, content: bytes) -> None:
        """The sink has taken this; it may do so before the submitter has read its 250."""
        key = (spelling(sender), spelling(recipient))
        digest = hashlib.sha256(without_trace(content)).hexdigest()
        if key in self.accepted:
            self._arrive(key, digest)
        else:
            self.early.setdefault(key, []).append(digest)

    @property
    def outstanding(self) -> int:
        """Accepted recipients that have not arrived."""
        return len(self.accepted) - len(self.arrived)

    def account(self) -> Account:
        """The figures as they stand."""
        return Account(
            accepted=len(self.accepted),
            delivered=len(self.arrived),
            lost=self.outstanding,
            duplicated=self.arrived.total() - len(self.arrived),
            altered=len(self.altered),
            ended=len(self.ended),
        )

    def _arrive(self, key: Key, digest: str) -> None:
        self.arrived[key] += 1
        if digest == self.accepted[key]:
            return
        (self.ended if digest == self.unended.get(key) else self.altered).add(key)


def without_trace(content: bytes) -> bytes:
    """The content without the Received header field in front."""
    return _OUR_HEADER.sub(b"", content, count=1) if content.startswith(b"Received: ") else content


def _ended(content: bytes) -> bytes | None:
    """The content with an empty line where its header ends in text; None where the header is ended."""
    fields = _FIELDS.match(content)
    end = fields.end() if fields else 0
    if end == len(content) or content.startswith(b"\r\n", end):
        return None
    return content[:end] + b"\r\n" + content[end:]


def spelling(address: str) -> str:
    """The domain in one spelling: it has no case (RFC 5321 section 2.4), and U-labels leave as A-labels."""
    localpart, at, domain = address.rpartition("@")
    return f"{localpart}{at}{comparable(domain)}"
