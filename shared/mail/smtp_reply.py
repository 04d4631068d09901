"""smtp_reply — turn the bytes a peer sends back into SMTP replies

Owns: Reply, and ReplyParser, which takes bytes in any pieces that the network delivers.
Guarantees: pure; `feed` never raises and its replies do not depend on how the bytes were cut; text
holds printable characters only, so a reply can be logged, stored and mailed as it is; of a reply KEPT octets are
kept, its first lines and its last, so that unprintable text makes it four times as long and not a thousand times;
one of more than REPLY_LIMIT octets, or of more than LINES_LIMIT lines, is refused as malformed.
See: RFC 5321 §4.2 and §4.2.1 (syntax, several lines), RFC 2034 §4 and RFC 3463 §2 (enhanced codes).
Bugs: a reply whose lines carry different codes is refused, though some receivers let the last win:
to choose one would be a guess, and a guess could bounce mail.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import Final, Self

from shared.how_many import how_many

LINE_LIMIT: Final = 8192  # octets with line end; RFC 5321 §4.5.3.1.5 says 512, real hosts send more
REPLY_LIMIT: Final = 32_768  # octets of one reply; the longest honest ones have about two thousand
KEPT: Final = 2048  # octets of a reply that are kept, before characters that cannot be printed are escaped
LINES_LIMIT: Final = 100  # lines in one reply; the longest honest ones are EHLO's, a few dozen

_MORE: Final = "…".encode()
_POSITIVE, _INTERMEDIATE, _TRANSIENT, _PERMANENT = 2, 3, 4, 5  # first digits; RFC 5321 §4.2.1

# RFC 5321 §4.2: the first digit is 2 to 5. The others are taken as they come.
_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])(.*))?", re.DOTALL)
_ENHANCED = re.compile(r"([245]\.[0-9]{1,3}\.[0-9]{1,3})(?: |$)")  # RFC 3463 §2


@dataclass(frozen=True, slots=True)
class Reply:
    """A peer's reply to one command.

    `code` is the three-digit reply code, `enhanced` the RFC 3463 status when the peer gave one that
    agrees with the code, `lines` the text of each line without either.
    """

    code: int
    enhanced: str | None
    lines: tuple[str, ...]
    ours: bool = False  # the peer was not asked: we know that it could only refuse

    @classmethod
    def make(cls, code: int, enhanced: str | None, text: str) -> Self:
        """A reply of ours of one line, in place of one a peer need not be asked for."""
        return cls(code, enhanced, (text,), ours=True)

    @property
    def text(self) -> str:
        """All lines as one, without the codes."""
        return " ".join(self.lines).strip()

    @property
    def is_positive(self) -> bool:
        """2yz: done (RFC 5321 §4.2.1)."""
        return self.code // 100 == _POSITIVE

    @property
    def is_intermediate(self) -> bool:
        """3yz: go on, as 354 after DATA (RFC 5321 §4.2.1)."""
        return self.code // 100 == _INTERMEDIATE

    @property
    def is_transient(self) -> bool:
        """4yz: not now (RFC 5321 §4.2.1)."""
        return self.code // 100 == _TRANSIENT

    @property
    def is_permanent(self) -> bool:
        """5yz: not ever (RFC 5321 §4.2.1)."""
        return self.code // 100 == _PERMANENT

    def __str__(self) -> str:
        """The reply on one line, codes first, as operators know it from a mail log."""
        return " ".join(part for part in (str(self.code), self.enhanced, self.text) if part)


class ReplyParser:
    """Collects bytes and gives out whole replies.

    After a malformed line `broken` says what was wrong with it, and everything later is ignored, because it is
    unknown which command the next line would answer.
    """

    __slots__ = ("_buffer", "_code", "_count", "_head", "_left_out", "_octets", "_tail", "broken")

    def __init__(self) -> None:
        """A parser that has read nothing."""
        self.broken: str | None = None
        self._buffer = b""
        self._begin()

    @property
    def pending(self) -> bool:
        """Whether a reply has begun and not ended, or nothing can be read any more."""
        return bool(self._buffer or self._count or self.broken)

    def feed(self, received: bytes) -> list[Reply]:
        """The replies completed by these bytes, in order; those before a broken line included."""
        replies: list[Reply] = []
        if self.broken is not None:
            return replies
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        try:
            for line in lines:
                reply = self._take(line)
                if reply is not None:
                    replies.append(reply)
            _check_length(self._buffer)
        except _BrokenLine as error:
            self.broken = str(error)
            self._buffer = b""
            self._begin()
        return replies

    def _begin(self) -> None:
        self._code = self._count = self._octets = self._left_out = 0
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()

    def _take(self, line: bytes) -> Reply | None:
        """One line without its LF; a reply when this line ends one."""
        _check_length(line)
        # A bare LF ends a reply line too: receivers that send it exist, and nothing hides behind it.
        match = _LINE.fullmatch(line.removesuffix(b"\r"))
        if match is None:
            raise _BrokenLine(f"not an SMTP reply: {printable(line[:80])}")
        code = int(match[1])
        if self._count and code != self._code:
            raise _BrokenLine(f"one reply with two codes, {self._code} and {code}")
        self._code = code
        self._count += 1
        self._octets += len(line) + 1
        if self._count > LINES_LIMIT:
            raise _BrokenLine(f"reply of more than {LINES_LIMIT} lines")
        if self._octets > REPLY_LIMIT:
            raise _BrokenLine(f"reply of more than {REPLY_LIMIT} octets")
        self._keep(_cut(match[3] or b""))
        if match[2] == b"-":
            return None
        left_out = [f"[{how_many(self._left_out, 'line')} left out]".encode()] if self._left_out else []
        lines = [printable(kept) for kept in (*self._head, *left_out, *self._tail)]
        self._begin()
        return _reply(code, lines)

    def _keep(self, text: bytes) -> None:
        """The first lines up to half of what is kept, and of the others the last."""
        if not self._tail and sum(map(len, self._head)) + len(text) <= KEPT // 2:
            self._head.append(text)
            return
        self._tail.append(text)
        while sum(map(len, self._tail)) > KEPT // 2 and len(self._tail) > 1:
            self._tail.popleft()
            self._left_out += 1


class _BrokenLine(ValueError):
    """The bytes are not a reply; the text says why. Never leaves `feed`."""


def _check_length(line: bytes) -> None:
    if len(line) >= LINE_LIMIT:
        raise _BrokenLine(f"reply line longer than {LINE_LIMIT} octets")


def _cut(line: bytes) -> bytes:
    """As much of one line as is kept; no character is cut in two."""
    if len(line) <= KEPT // 2:
        return line
    kept = line[: KEPT // 2 - len(_MORE)]
    return kept.decode("utf-8", "ignore").encode() + _MORE if _is_utf8(kept) else kept + _MORE


def _is_utf8(octets: bytes) -> bool:
    """Whether it is UTF-8, but for a last character that was cut."""
    try:
        octets.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return True


def _reply(code: int, lines: list[str]) -> Reply:
    """Lift the enhanced code out of the lines that repeat it (RFC 2034 §4)."""
    match = _ENHANCED.match(lines[0])
    # A status of another class than the code is an error of the peer's; the code is what binds.
    if match is None or int(match[1][0]) != code // 100:
        return Reply(code, None, tuple(lines))
    enhanced = match[1]
    prefix = f"{enhanced} "
    return Reply(
        code,
        enhanced,
        tuple("" if line == enhanced else line.removeprefix(prefix) for line in lines),
    )


def printable(raw: bytes) -> str:
    r"""Bytes from a peer as text fit for logs and terminals.

    UTF-8 where it is UTF-8 (RFC 6531 §3.7.4.2 allows it), `\x..` where it is not, and every character
    that is not printable as its escape, so that no peer writes control sequences to a terminal.
    """
    text = raw.decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
