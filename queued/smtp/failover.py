"""failover — talks to one host after another until one takes the message or has judged it

Owns: the ends of a conversation that lead to the next host, and the number of hosts to try.
Guarantees: a host that did not answer, or refused to talk to us, is passed over; so is one that gave up before any
    content was sent and before it judged any recipient. Once content was sent no other host is tried, whatever became
    of it, so that going on never duplicates. At most `addresses` hosts are tried and at most `sessions` of those that
    greeted us. The reply of the last one decides. A host that is shut (queued/destinations/hosts.py) is passed over
    without being tried; where all are, no host is contacted. Mail for a host that refuses a connection while it serves
    others of ours waits for its turn there, if no other host judges it.
Raises: PoolClosedError when the pool closes meanwhile; ParkedError when no host may be connected to now.
See: RFC 5321 section 5.1 (try the next host); Postfix smtp_mx_address_limit and smtp_mx_session_limit;
    smtp_skip_5xx_greeting: a permanent refusal in a greeting concerns that host alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from queued.destinations.destination import Busy
from queued.destinations.hosts import soonest
from queued.smtp import conversation
from queued.smtp.client import is_too_many_messages
from queued.smtp.commands import NEEDS_REQUIRETLS
from queued.smtp.transaction import ConversationError, TransactionResult
from queued.waiting import watchdog
from queued.waiting.deferral import SOONEST, Deferral, ParkedError
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queued.destinations.destination import Waiting
    from queued.destinations.hosts import Entrance
    from queued.routing.route import Hop
    from queued.smtp.pool import ConnectionPool, SessionWanted
    from queued.smtp.transaction import Fault, Transaction
    from queued.waiting.watchdog import Phase

_BEFORE_CONTENT: Final[frozenset[Phase]] = frozenset(
    {"connect", "greeting", "helo", "starttls", "auth", "mail", "rcpt", "data"}
)
_CLOSING: Final = 421  # RFC 5321 section 3.8


class Talk(NamedTuple):
    """The host that was talked to last, and what came of it. unreachable: those that no connection came about with."""

    hop: Hop
    result: TransactionResult
    unreachable: tuple[Hop, ...] = ()


async def talk(
    pool: ConnectionPool,
    hops: Sequence[Hop],
    transaction: Transaction,
    *,
    wanted: Callable[[Hop], SessionWanted],
    entrance: Entrance,
    addresses: int,
    sessions: int,
) -> Talk:
    """The transaction with the first of `hops`, which are at least one, that goes through with it.

    `wanted`: how each host is to be spoken to. `entrance`: whether it may be connected to now.
    """
    answered = tried = 0
    unreachable: list[Hop] = []
    shut: list[Deferral] = []
    said: tuple[Hop, TransactionResult] | None = None
    full: Deferral | None = None  # a host serves other connections of ours, and takes no more
    for hop in hops:
        place = await entrance.enter(hop)
        if isinstance(place, Deferral):
            if isinstance(place, Busy) and said is None:
                raise ParkedError(place)  # it takes mail: the host that is preferred is worth waiting for
            shut.append(place)
            continue
        if said is not None:
            events.emit("failover.passed", remote=said[0], reason=_reason(said[1]))
        tried += 1
        asked = await _ask(pool, hop, transaction, wanted, entrance, place)
        full = asked.full or full
        if asked.full is None:
            said = hop, asked.result
            answered += asked.connected
            if not asked.connected:
                unreachable.append(hop)
        if tried >= addresses or answered >= sessions or not (asked.full or may_go_on(asked.result)):
            break
    if full is not None and (said is None or may_go_on(said[1])):
        raise ParkedError(full)
    if said is None:
        raise ParkedError(soonest(shut))
    return Talk(*said, tuple(unreachable))


class _Asked(NamedTuple):
    """What one host did with the transaction. connected: a session came about; full: it takes no more connections."""

    result: TransactionResult
    connected: bool
    full: Deferral | None = None


async def _ask(
    pool: ConnectionPool,
    hop: Hop,
    transaction: Transaction,
    wanted: Callable[[Hop], SessionWanted],
    entrance: Entrance,
    place: Waiting,
) -> _Asked:
    """The transaction with one host, whose place is given back."""
    conversation.noted(f"to {hop}")
    reached: bool | None = None
    why, barred = "", False
    most: int | None = None
    try:
        session = wanted(hop)
        reached = False
        result = await _converse(pool, hop, session, transaction)
        reached = _has_answered(result)
        if result.fault is not None:
            conversation.noted(result.fault.text)
        return _Asked(result, connected=True)
    except ConversationError as error:
        conversation.noted(error.fault.text)
        result = TransactionResult(None, (None,) * len(transaction.recipients), None, None, error.fault)
        reached = None  # unless it proves to be at fault
        if _is_turned_away(error.fault):
            most = await pool.serving(hop) or None
        if most is not None:
            reason = f"host {hop} takes no more connections: {error.fault.reply}"
            return _Asked(result, connected=False, full=Deferral(SOONEST, reason))
        reached, why, barred = False, error.fault.text, error.fault.kind == "login"
        return _Asked(result, connected=False)
    except BaseException:
        # Stopping, or a lease that ended, says nothing about the host; that nothing moved does.
        reached, why = (False, "no progress") if watchdog.stuck() else (None, "")
        raise
    finally:
        entrance.leave(place, reached=reached, why=why, barred=barred, most=most)


def _is_turned_away(fault: Fault) -> bool:
    """Whether a host refused a connection for now; while it serves others of ours, those are as many as it takes."""
    return fault.phase in {"greeting", "helo"} and fault.reply is not None and fault.reply.is_transient


def _has_answered(result: TransactionResult) -> bool | None:
    """Whether the host is alive: None where it greeted us and then fell silent, or said that it is going away."""
    if result.fault is not None and result.fault.kind == "timeout":
        return None
    replies = [reply for reply in result.recipients if reply is not None]
    return None if replies and all(reply.code == _CLOSING for reply in replies) else True


def may_go_on(result: TransactionResult) -> bool:
    """Whether another host may be asked: this one had no content of ours and judged no recipient."""
    if result.final is not None:
        return False
    if result.mail is NEEDS_REQUIRETLS:
        return True  # RFC 8689 section 4.2.1: another host of the destination may offer it
    if result.fault is not None:
        return result.fault.phase in _BEFORE_CONTENT and not any(result.recipients)
    return _closes_for_all(result)


def _closes_for_all(result: TransactionResult) -> bool:
    """Whether 421 is the reply to every recipient."""
    return all(reply is not None and reply.code == _CLOSING for reply in result.recipients)


def _reason(result: TransactionResult) -> str:
    """Why a host is passed over: its fault, or its 421."""
    return result.fault.text if result.fault is not None else str(result.recipients[0])


async def _converse(
    pool: ConnectionPool, hop: Hop, session: SessionWanted, transaction: Transaction
) -> TransactionResult:
    """The conversation, once more on a fresh connection if the host wanted no more mail on a kept one."""
    while True:
        async with pool.acquire(hop, session) as connection:
            kept = connection.transactions > 0
            result = await connection.send(transaction)
        if not (kept and _had_enough(result)):
            return result


def _had_enough(result: TransactionResult) -> bool:
    """Whether the host closed this connection, or refused more messages on it, before it judged any recipient."""
    if result.fault is not None:
        return result.fault.phase == "mail" and result.fault.kind == "closed"
    if result.mail is not None and is_too_many_messages(result.mail):
        return True
    return result.final is None and _closes_for_all(result)
