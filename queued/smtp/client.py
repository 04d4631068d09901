"""client — holds one SMTP conversation with one host

Owns: SmtpConnection, from EHLO to QUIT, and with it every octet that leaves for another host.
Guarantees: `send` returns a result for every recipient and raises nothing but cancellation; nothing in a
message or an address can end DATA early or add a command; each step has its own time limit; after a
fault, a 421 or a cancellation in mid-transaction the connection is cut and `usable` is false. After a fault of
protocol, or a reply that came when none was due, no reply of the transaction is believed, because any of them may
answer another command: not the refusal of a recipient, and no acceptance except one that the surplus reply repeats, or
by LMTP a recipient's own that came before the unreadable one.
Raises: ConversationError from `open`; ValueError for an invalid host name of ours.
See: queued/smtp/handshake.py for the steps before; RFC 5321 §3.3, §4.1.4 (order of commands), §3.8 (421); RFC 2920
    §3.1 (pipelining); RFC 6531 §3.2.
Our own client because the well-known ones pass stray CR and LF through, and because this server must control which
octets leave, in which order and with which time limits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, Self

from queued.smtp import commands, conversation
from queued.smtp.content import wire_pieces
from queued.smtp.handshake import Introduction, open_session
from queued.smtp.transaction import ConversationError, Fault, TransactionResult
from queued.tls.context import Contexts
from queued.tls.demanded import CLEAR
from shared.failure_points import reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queued.smtp.auth import Login
    from queued.smtp.handshake import Opened
    from queued.smtp.own_secrets import OwnSecrets
    from queued.smtp.transaction import Timeouts, Transaction
    from queued.tls.demanded import TlsWanted
    from queued.waiting.watchdog import Phase
    from shared.mail.smtp_reply import Reply

_CLOSING = 421  # RFC 5321 §3.8: may answer any command, and the connection ends
_BYE = 221  # RFC 5321 §4.3.2: answers QUIT and nothing else
_TOO_MANY = 452  # RFC 9422 §4.1, with 4.5.3
_GO_ON = 354  # RFC 5321 §4.3.2: the one reply that lets content follow DATA


class SmtpConnection:
    """One open connection past its EHLO.

    extensions: keyword to parameters, as the peer offered them; empty after HELO. tls: what was negotiated, or "none".
    transactions: how many were begun here. most: how many the host takes; None if it has not said.
    opened_at, last_used: event-loop time, in seconds.
    """

    #: How we greet, best first.
    verbs: ClassVar[tuple[str, ...]] = ("EHLO", "HELO")

    def __init__(self, opened: Opened, timeouts: Timeouts) -> None:
        """For `open` only."""
        self._wire = opened.wire
        self._timeouts = timeouts
        self._loop = asyncio.get_running_loop()
        self._ready = True
        self._reset_due = False
        self.extensions = opened.extensions
        self.tls = opened.tls
        self.transactions = 0
        self.most = commands.session_limit("MAILMAX", opened.extensions)
        self.opened_at = self.last_used = self._loop.time()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        hostname: str,
        timeouts: Timeouts,
        source: str | None = None,
        tls: TlsWanted = CLEAR,
        contexts: Contexts | None = None,
        login: Login | None = None,
        secrets: OwnSecrets | None = None,
        discards: frozenset[str] = frozenset(),
    ) -> Self:
        """Connect to host:port from the local address `source`, and introduce ourselves as `hostname`, with this TLS.

        contexts: OpenSSL's settings; None for those of a transport that says nothing. login: as whom we log in, if so.
        secrets: what must not be read in the host's replies. discards: keywords of EHLO that count as not offered.
        """
        we = Introduction(hostname, source, tls, contexts or Contexts(), login, cls.verbs, secrets, discards)
        return cls(await open_session(host, port, we, timeouts), timeouts)

    @property
    def usable(self) -> bool:
        """Whether another transaction may begin here: in step, open, and nothing unexpected was said."""
        return self._ready and self._wire.is_open and not self._wire.has_reply

    async def send(self, transaction: Transaction) -> TransactionResult:
        """One mail transaction (RFC 5321 §3.3); one coroutine at a time."""
        progress = TransactionReplies(transaction, self.extensions, self.tls)
        if not progress.live:
            return progress.result(None)
        if not self.usable:
            return progress.result(await self._why_unusable())
        self._ready = False
        self._wire.begin()
        if self.transactions:
            conversation.noted("a connection that was kept")
        self.transactions += 1
        fault: Fault | None = None
        shifted = False  # whether a fault speaks of all replies, not only of those that did not come
        try:
            await self._converse(transaction, progress)
            shifted = True
            self._ready = await self._in_step(progress)
        except _Closing as closing:
            progress.close(closing.phase, closing.reply)
        except ConversationError as error:
            fault = error.fault
        finally:
            self.last_used = self._loop.time()
            if not self._ready:
                self.abort()
        return progress.result(fault, shifted=shifted)

    async def close(self) -> None:
        """QUIT, then close; never raises, and takes at most the `quit` limit.

        The reply to QUIT is not waited for (Postfix smtp_skip_quit_response): it could change nothing.
        """
        self._ready = False
        await self._wire.close(b"QUIT\r\n", self._timeouts.quit)

    def abort(self) -> None:
        """Cut the connection at once, without QUIT."""
        self._ready = False
        self._wire.abort()

    async def _converse(self, transaction: Transaction, progress: TransactionReplies) -> None:
        """Envelope and content; returns with peer and us in step, or raises."""
        reset = [b"RSET\r\n"] if self._reset_due else []
        mail = commands.mail_command(transaction, self.extensions)
        rcpts = [commands.rcpt_command(transaction, index, self.extensions) for index in progress.live]
        if self._pipelining:
            # RFC 2920 §3.1: RSET, MAIL and RCPT anywhere in a group, DATA only as its last command.
            group = [*reset, mail, *rcpts, b"DATA\r\n"]
            self._wire.write(b"".join(group), replies=len(group))
        for command in reset:
            if not (await self._ask(command, "mail", self._timeouts.rset)).is_positive:
                raise ConversationError(Fault("protocol", "mail", "RSET was refused"))
        accepted = await self._offer(progress, mail, rcpts)
        if not accepted and not self._pipelining:
            return
        progress.data = await self._ask(b"DATA\r\n", "data", self._timeouts.data)
        if not accepted:
            await self._send_nothing(progress.data)
        elif progress.data.code == _GO_ON:
            await self._finish(transaction, progress)
            self._reset_due = False
        else:
            progress.settle(progress.data)

    async def _in_step(self, progress: TransactionReplies) -> bool:
        """Whether the conversation goes on; ConversationError if replies and commands do not belong together after all.

        354 proves that they did up to there. Without one, a refusal may be that of another recipient, or of an earlier
        transaction, moved by a reply too many; so may a permanent refusal after the final dot, and the final replies of
        several recipients where they differ (RFC 2033 section 4.2). The reply to QUIT tells: only QUIT is answered by
        221, while a 250 may be the answer to anything that is still due.
        """
        # After the final dot the peer may have the message, with any reply to QUIT.
        phase: Phase = "dot" if progress.final is not None else "mail"
        refused = not self.extensions or ("STARTTLS" in self.extensions and self.tls == "none")
        asked = not self._wire.surplus and progress.may_be_shifted(first=self.transactions == 1 and not refused)
        if asked:
            conversation.said(b"QUIT\r\n")
            self._wire.write(b"QUIT\r\n", replies=1)
            try:
                reply = await self._wire.reply(phase, self._timeouts.rset)
            except ConversationError as error:
                if error.fault.kind == "protocol":
                    raise
                return False  # many hang up on whom they refuse
            if reply.code not in {_CLOSING, _BYE}:
                raise ConversationError(Fault("protocol", phase, f"unexpected reply to QUIT: {reply}"))
        said = self._wire.surplus_reply
        if self._wire.surplus and not (progress.is_taken_for_all and said is not None and said.is_positive):
            raise ConversationError(Fault("protocol", phase, self._wire.surplus))
        return not (asked or self._wire.surplus)  # one that says 250 twice has taken it, and is out of step

    async def _offer(self, progress: TransactionReplies, mail: bytes, rcpts: list[bytes]) -> bool:
        """The envelope; whether the peer accepts the message for any recipient."""
        progress.mail = await self._ask(mail, "mail", self._timeouts.mail)
        # Until the reply to the final dot a transaction may stay open at the peer.
        self._reset_due = progress.mail.is_positive
        if not progress.mail.is_positive:
            if is_too_many_messages(progress.mail):
                self.most = self.transactions
            progress.settle(progress.mail)
            if not self._pipelining:
                return False
        accepted = False
        for index, command in zip(progress.live, rcpts, strict=True):
            reply = await self._ask(command, "rcpt", self._timeouts.rcpt)
            if reply.is_positive:
                accepted = progress.mail.is_positive
            else:
                progress.refuse(index, reply)
        return accepted

    async def _ask(self, command: bytes, phase: Phase, limit: float) -> Reply:
        """The reply to a command; the command went out before, with its group, when pipelining."""
        conversation.said(command)
        if not self._pipelining:
            self._wire.write(command, replies=1)
        return verdict(phase, await self._wire.reply(phase, limit))

    @property
    def _pipelining(self) -> bool:
        return "PIPELINING" in self.extensions

    async def _send_nothing(self, data: Reply) -> None:
        """A lone dot, when DATA was let through for no recipient at all (RFC 2920 §3.1)."""
        if data.code == _GO_ON:
            self._wire.write(b".\r\n", replies=1)
            verdict("dot", await self._wire.reply("dot", self._timeouts.dot))

    async def _finish(self, transaction: Transaction, progress: TransactionReplies) -> None:
        """The content, and the reply to the dot that ends it."""
        await self._write_content(transaction, replies=1)
        progress.final = verdict("dot", await self._wire.reply("dot", self._timeouts.dot))
        progress.settle(progress.final)

    async def _write_content(self, transaction: Transaction, *, replies: int) -> None:
        """The content, with the dot that ends it, to which the peer owes so many replies."""
        conversation.content(len(transaction.prefix) + len(transaction.content))
        pieces = wire_pieces(transaction.content, transaction.prefix)
        piece = next(pieces)
        for following in pieces:
            self._wire.write(piece)
            await self._wire.drain("body", self._timeouts.body)
            if self._wire.has_reply:
                break
            piece = following
        if self._wire.has_reply:
            # The peer judged before the end. Without its dot the message cannot count as taken.
            reply = verdict("body", await self._wire.reply("body", self._timeouts.body))
            if reply.is_positive:
                raise ConversationError(Fault("protocol", "body", "content accepted before its end"))
            raise _Closing("body", reply)
        self._wire.check("body")
        self._wire.write(piece, replies=replies)
        reach("deliver.after_data")

    async def _why_unusable(self) -> Fault:
        """The fault of a connection that went away between two transactions."""
        reply = await self._wire.reply("mail", self._timeouts.mail) if self._wire.has_reply else None
        self.abort()
        if reply is not None and reply.code == _CLOSING:
            return Fault("refused", "mail", f"host is closing the connection: {reply}", reply)
        if reply is not None:
            return Fault("protocol", "mail", f"reply without a command: {reply}", reply)
        if self._wire.surplus:
            # On a kept connection it came after the transaction before: this one may begin on another.
            return Fault("closed" if self.transactions else "protocol", "mail", self._wire.surplus)
        return Fault("closed", "mail", "connection is not open any more")


class TransactionReplies:
    """The replies of one transaction, gathered until each recipient has the one that decides."""

    def __init__(self, transaction: Transaction, extensions: Mapping[str, str], tls: str) -> None:
        self.tls = tls
        self.dsn = "DSN" in extensions
        self.mail = commands.refuse_message(transaction, extensions)
        self.data: Reply | None = None
        self.final: Reply | None = None
        self._finals: list[Reply] = []
        self._recipients: list[Reply | None] = [
            self.mail or commands.refuse_recipient(recipient, smtputf8=transaction.smtputf8)
            for recipient in transaction.recipients
        ]
        askable = [index for index, reply in enumerate(self._recipients) if reply is None]
        # Positions of the recipients the peer is to be asked about.
        self.live = commands.within_limits(transaction.recipients, askable, extensions)
        for index in {*askable} - {*self.live}:
            self._recipients[index] = commands.NOT_OFFERED

    def refuse(self, index: int, reply: Reply) -> None:
        """One recipient was refused; an earlier refusal of the whole message is kept."""
        if self._recipients[index] is None:
            self._recipients[index] = reply

    def settle(self, reply: Reply) -> None:
        """This reply decides for all recipients not decided yet; a refusal also for those who were not offered."""
        self._recipients = [
            reply if earlier is None or (earlier is commands.NOT_OFFERED and not reply.is_positive) else earlier
            for earlier in self._recipients
        ]

    @property
    def undecided(self) -> tuple[int, ...]:
        """The positions of those for whom nothing has been said yet: once content is wanted, the accepted ones."""
        return tuple(index for index, reply in enumerate(self._recipients) if reply is None)

    def end(self, index: int, reply: Reply) -> None:
        """The reply to the final dot for one recipient (RFC 2033 §4.2)."""
        self._recipients[index] = reply
        self._finals.append(reply)
        if self.final is None or not self.final.is_positive:
            self.final = reply

    def close(self, phase: Phase, reply: Reply) -> None:
        """This reply decides too, and it ended the conversation in this phase."""
        if None not in self._recipients:
            return
        if phase == "mail":
            self.mail = reply
        elif phase == "data":
            self.data = reply
        elif phase in {"body", "dot"}:
            self.final = reply
        self.settle(reply)

    @property
    def is_taken_for_all(self) -> bool:
        """Whether the peer's reply to the final dot accepts the message, for all accepted recipients."""
        return self.final is not None and self.final.is_positive and all(reply.is_positive for reply in self._finals)

    def may_be_shifted(self, *, first: bool) -> bool:
        """Whether a recipient was refused permanently, and nothing proves that the reply is its own.

        first: whether nothing was refused on this connection before, and no transaction was on it: such replies may
            come late.
        """
        if self.final is not None and self.final.is_permanent:
            return True
        if len(self._finals) > 1 and not all(reply.is_positive for reply in self._finals):
            return True  # and so another may not have the message at all
        if self.data is not None and self.data.code == _GO_ON:
            return False
        if first and (len(self.live) == 1 or self.mail is None or not self.mail.is_positive):
            return False  # there is no other command whose refusal it could be
        replies = [self._recipients[index] for index in self.live]
        return any(reply is not None and reply.is_permanent for reply in replies)

    def result(self, fault: Fault | None, *, shifted: bool = False) -> TransactionResult:
        """The known results; a fault after the last recipient was decided changes nothing, unless it is of protocol.

        After that no refusal is believed; an acceptance by a recipient's own final reply is, unless the
        replies may be `shifted`.
        """
        if fault is not None and fault.kind == "protocol":
            stay = () if shifted else tuple(reply for reply in self._finals if reply.is_positive)
            self._recipients = [
                reply if reply is not None and (reply.ours or any(reply is each for each in stay)) else None
                for reply in self._recipients
            ]
        if fault is not None and fault.phase not in {"body", "dot"}:
            self._recipients = [None if reply is commands.NOT_OFFERED else reply for reply in self._recipients]
        undecided = None in self._recipients
        broken = fault if undecided else None
        recipients, finals = tuple(self._recipients), tuple(self._finals)
        return TransactionResult(self.mail, recipients, self.data, self.final, broken, self.tls, self.dsn, finals)


class _Closing(Exception):
    """Not an error: the reply that ends the connection, on its way to `send`."""

    def __init__(self, phase: Phase, reply: Reply) -> None:
        super().__init__()
        self.phase: Phase = phase
        self.reply = reply


def closes(reply: Reply) -> bool:
    """Whether the connection ends with this reply (RFC 5321 §3.8)."""
    return reply.code == _CLOSING


def is_too_many_messages(reply: Reply) -> bool:
    """Whether a reply to MAIL says that this connection has carried enough, and not that the host is full."""
    return reply.code == _TOO_MANY and reply.enhanced is not None and reply.enhanced.startswith("4.5.")


def verdict(phase: Phase, reply: Reply) -> Reply:
    """The reply, when it is one this phase can be answered with (RFC 5321 §4.3.2)."""
    if closes(reply):
        raise _Closing(phase, reply)
    if phase == "data":
        fits = not reply.is_positive and (reply.code == _GO_ON or not reply.is_intermediate)
    else:
        fits = not reply.is_intermediate
    if not fits:
        raise ConversationError(Fault("protocol", phase, f"unexpected reply: {reply}", reply))
    return reply
