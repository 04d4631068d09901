"""lmtp — holds one LMTP conversation with the host where mail ends

Guarantees: as queued.smtp.client, but each accepted recipient has its own reply to the final dot, which alone decides
    about it. When the connection ends after some of these replies, or one of them cannot be read, the
    others are uncertain: the host may have delivered to them. Where there are more replies than recipients and not all
    of them are positive, all recipients are uncertain.
See: RFC 2033 section 4.1 (LHLO), section 4.2 (replies to the final dot).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from queued.smtp.client import SmtpConnection, closes, verdict
from queued.smtp.transaction import ConversationError, Fault

if TYPE_CHECKING:
    from queued.smtp.client import TransactionReplies
    from queued.smtp.transaction import Transaction
    from shared.mail.smtp_reply import Reply


class LmtpConnection(SmtpConnection):
    """One open connection past its LHLO."""

    verbs: ClassVar[tuple[str, ...]] = ("LHLO",)

    async def _finish(self, transaction: Transaction, progress: TransactionReplies) -> None:
        """The content, and a reply for each recipient that was accepted, in the order of RCPT."""
        waiting = progress.undecided
        await self._write_content(transaction, replies=len(waiting))
        closing = False
        for index in waiting:
            reply = await self._wire.reply("dot", self._timeouts.dot)
            if reply.is_intermediate:
                raise ConversationError(Fault("protocol", "dot", f"unexpected reply: {reply}", reply))
            progress.end(index, reply)
            closing |= closes(reply)
        if closing and not self._wire.surplus:
            raise ConversationError(Fault("closed", "dot", "host is closing the connection"))

    async def _send_nothing(self, data: Reply) -> None:
        """RFC 2033 section 4.2: DATA must fail when no recipient was accepted, and a lone dot would have no reply."""
        if not (data.is_permanent or data.is_transient):
            verdict("data", data)
            # Not a fault of protocol, after which no refusal would be believed: 354 proves that each has its own.
            raise ConversationError(Fault("closed", "data", "host asks for content without a recipient", data))
