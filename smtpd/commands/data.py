"""data — DATA and BDAT: the content, and the end of a transaction

Owns: when content may come, where it goes, the check for room before it is asked for, and the search for its end.
Guarantees: the end of content ends the transaction, with any reply (RFC 5321 section 4.1.1.4). Only CR LF . CR LF ends
    DATA; LF . LF, CR . CR and every other mixture are content. Content that cannot be accepted is read to its end and
    dropped, so that it is never taken for commands. The octets of a BDAT are read even when the command is refused (RFC
    3030 section 4.2).
Raises: Refused, which smtpd.connection.connection answers.
See: RFC 5321 sections 2.3.8 (lines), 4.1.1.4 and 4.5.2 (transparency); RFC 3030 sections 2 and 4.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from smtpd import replies
from smtpd.replies import Refused
from smtpd.session.body_budget import Content
from smtpd.session.receive import no_room, not_ready, receive

if TYPE_CHECKING:
    from collections.abc import Callable

    from smtpd.session.session import Session

_CHUNK: Final = re.compile(r"([0-9]{1,15})(?: +(LAST))?", re.IGNORECASE)
_END: Final = b"\r\n.\r\n"
_STUFFED: Final = b"\r\n."
_LINE_END: Final = b"\r\n"


async def data(session: Session, argument: str) -> str:
    """RFC 5321 section 4.1.1.4."""
    if argument:
        raise Refused(replies.R501_DATA_ARGUMENT)
    if session.chunks is not None:
        raise Refused(replies.R503_AFTER_BDAT)
    transaction = session.transaction
    if transaction is None or not transaction.recipients:
        raise Refused(session.full or no_room(session.service.spool) or replies.R503_NEED_RCPT)
    if transaction.parameters.body == "BINARYMIME":
        raise Refused(replies.R503_NEED_BDAT)
    refused = _no_room(session)
    if refused is not None:
        # A client that goes on with MAIL and RCPT without reading each reply must not add to these recipients.
        session.reset()
        raise Refused(refused)
    session.line.take(DataIntake(session, _content(session)))
    return replies.R354_GO_ON


async def bdat(session: Session, argument: str) -> str | None:
    """RFC 3030 section 2: the reply comes after the octets."""
    chunk = _CHUNK.fullmatch(argument)
    if chunk is None:
        # How many octets follow cannot be known, so that nothing that follows can be taken for a command.
        raise Refused(replies.R521_CHUNK_SIZE)
    if not session.service.announces("CHUNKING"):
        raise Refused(replies.R521_NO_CHUNKS)
    size, last = int(chunk[1]), chunk[2] is not None
    transaction = session.transaction
    refused: str | None = None
    if not size and not last:
        session.waste()
    if transaction is None or not transaction.recipients:
        refused = session.full or no_room(session.service.spool) or replies.R503_NEED_RCPT
    elif session.chunks is None:
        session.chunks = _content(session)
        trouble = _no_room(session, size)
        if trouble is not None:
            session.chunks.refuse(trouble)
    session.line.take(ChunkIntake(session, size, refused=refused, last=last))
    return None


class DataIntake:
    """The content between 354 and the lone dot."""

    __slots__ = ("_content", "_session", "feed")

    def __init__(self, session: Session, content: Content) -> None:
        self._session = session
        self._content = content
        self.feed = DataReader(content.add).feed

    @property
    def wanted(self) -> int | None:
        """Only the content itself says where it ends."""
        return None

    async def finish(self) -> str:
        """The lone dot has come."""
        return await _end(self._session, self._content)

    def close(self) -> None:
        """Give the memory back."""
        self._content.close()


class ChunkIntake:
    """The octets of one BDAT."""

    __slots__ = ("_last", "_left", "_refused", "_session", "_size")

    def __init__(self, session: Session, size: int, *, refused: str | None, last: bool) -> None:
        self._session = session
        self._size = self._left = size
        self._refused = refused
        self._last = last

    @property
    def wanted(self) -> int | None:
        """The rest of the chunk."""
        return self._left

    def feed(self, octets: bytes) -> bytes | None:
        """All octets are content."""
        chunks = self._session.chunks
        self._left -= len(octets)
        if octets and chunks is not None:
            chunks.add(octets)
        return None if self._left else b""

    async def finish(self) -> str:
        """The chunk has come; LAST ends the message. After an error the chunks that follow have the same one."""
        session, chunks = self._session, self._session.chunks
        if self._refused is not None or chunks is None:
            return session.refused(self._refused or replies.R503_NEED_RCPT)
        if self._last:
            session.chunks = None
            return await _end(session, chunks)
        if chunks.refused is not None:
            return session.refused(chunks.refused)
        return replies.R250_CHUNK.format(size=self._size)

    def close(self) -> None:
        """The content belongs to the session, which gives its memory back."""


def _content(session: Session) -> Content:
    return Content(session.service.budget, session.service.server.phases.data.maxsize, session.stranger())


def _no_room(session: Session, octets: int = 0) -> str | None:
    """Why what was declared, or `octets`, cannot be taken now, before it comes. A promise keeps no room from others."""
    service = session.service
    declared = session.transaction.parameters.size if session.transaction is not None else None
    wanted = min(max(declared or 0, octets), service.server.phases.data.maxsize)
    return not_ready(service.spool, wanted) or (
        None if service.budget.fits(wanted, session.stranger()) else replies.R452_NO_MEMORY
    )


async def _end(session: Session, content: Content) -> str:
    """The content is complete."""
    transaction = session.transaction
    try:
        session.transaction = None
        session.messages += 1
        if transaction is None:  # impossible: an intake exists only in a transaction
            return replies.R503_NEED_RCPT
        if content.refused is not None:
            return session.refused(content.refused)
        transaction.content = content.octets()
        reply = await receive(session, transaction)
        if not reply.startswith("250"):
            return session.refused(reply, str(transaction.sender or "<>"))
        session.errors = session.junk = 0
        return reply
    finally:
        content.close()


class DataReader:
    """The octets between 354 and the final reply: feed it blocks until it returns those that follow the end of data.

    At most four octets are kept between blocks; everything else is passed on at once, so that the work for a block
    depends only on its own size.
    """

    __slots__ = ("_add", "_begun", "_tail")

    def __init__(self, add: Callable[[bytes], None]) -> None:
        """`add` takes the content, piece by piece, line ends included, stuffed dots not."""
        self._add = add
        # The CR LF before the first line makes a dot there look like a dot anywhere else.
        self._tail = _LINE_END
        self._begun = False

    def feed(self, block: bytes) -> bytes | None:
        """The octets after the end of data, possibly empty; None while the end has not come."""
        octets = self._tail + block if self._tail else block
        # Both at memory speed. Only between these may there be anything to do; most large content has no dot at all.
        first, last = octets.find(b"."), octets.rfind(b".")
        if first >= 0 and (end := octets.find(_END, max(0, first - 2), last + 3)) >= 0:
            self._hand_on(octets[: end + 2], first, min(last, end))
            return octets[end + len(_END) :]
        kept = _begins_end(octets)
        self._tail = octets[len(octets) - kept :]
        if kept < len(octets):
            self._hand_on(octets[: len(octets) - kept], first, last)
        return None

    def _hand_on(self, octets: bytes, first: int, last: int) -> None:
        """Whole sequences only: a dot after a line end is never cut off from it. `first`, `last`: dots of theirs."""
        stuffed = first >= 0 and octets.find(_STUFFED, max(0, first - 2), last + 1) >= 0
        content = octets.replace(_STUFFED, _LINE_END) if stuffed else octets
        if not self._begun:
            self._begun = True
            content = content[2:]
        if content:
            self._add(content)


def _begins_end(octets: bytes) -> int:
    """How many of the last octets may be the beginning of the end."""
    for length in (4, 3, 2, 1):
        if octets.endswith(_END[:length]):
            return length
    return 0
