"""remainder — sends recipients that were too many for one transaction in a next one, at once

Owns: the choice of the recipients that are a remainder, and of the reply that decides about each after several
    transactions.
Guarantees: a host is asked again only if it accepted the message for other recipients, or announces how many it takes,
    and each time for fewer, so it ends. A recipient without a judgement in a next transaction keeps the first one,
    unless the host may have taken the message.
See: RFC 5321 section 4.5.3.1.10 (452, and the former meaning of 552); RFC 9422 sections 4.2 and 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from queued.outcome.classify import classify
from queued.smtp.commands import NOT_OFFERED
from queued.smtp.transaction import Fault, TransactionResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from queued.smtp.transaction import Transaction
    from queued.waiting.watchdog import Phase
    from shared.mail.outcome import Outcome
    from shared.mail.smtp_reply import Reply

_TOO_MANY: Final = frozenset({452, 552})


class Judged(NamedTuple):
    """The judgement of one recipient: its outcome, the reply behind it, and the transaction that had it."""

    outcome: Outcome
    reply: Reply | None
    result: TransactionResult


async def with_remainder(
    result: TransactionResult,
    offered: Transaction,
    again: Callable[[Transaction], Awaitable[TransactionResult | None]],
) -> list[Judged]:
    """The judgement of each recipient of `offered`, in their order.

    `again` offers the message to the same host for some of them; None when that cannot be now.
    """
    judged = [Judged(o, r, result) for o, r in zip(classify(result), result.recipients, strict=True)]
    left = remainder(result)
    while left:
        following = await again(part(offered, left))
        if following is None:
            break
        for position, outcome, reply in zip(left, classify(following), following.recipients, strict=True):
            if reply is not None or outcome.uncertain:
                judged[position] = Judged(outcome, reply, following)
        left = [left[position] for position in remainder(following)]
    return judged


def remainder(result: TransactionResult) -> list[int]:
    """The positions of recipients over the limit.

    Those that the host refused so count only in a transaction that delivered the others, those that it was not asked
    about in any that did not break.
    """
    if result.final is None or not result.final.is_positive:
        unasked = [position for position, reply in enumerate(result.recipients) if reply is NOT_OFFERED]
        return unasked if result.fault is None else []
    if all(reply is result.final for reply in result.recipients):
        return []
    # By LMTP a recipient may have been refused at the final dot, which says nothing about their number.
    offered = [None if any(reply is final for final in result.finals) else reply for reply in result.recipients]
    return [position for position, reply in enumerate(offered) if reply is not None and _too_many(reply)]


def cut_off(offered: Transaction, phase: Phase) -> TransactionResult:
    """A next transaction that was ended while it waited for this: uncertain where the final dot was out."""
    fault = Fault("timeout", phase, f"ended while waiting for {phase}")
    return TransactionResult(None, (None,) * len(offered.recipients), None, None, fault)


def part(offered: Transaction, positions: Sequence[int]) -> Transaction:
    """The same message for some of its recipients."""
    return offered._replace(
        recipients=tuple(offered.recipients[position] for position in positions),
        dsn=tuple(offered.dsn[position] for position in positions) if offered.dsn else (),
    )


def _too_many(reply: Reply) -> bool:
    """Without an enhanced code, or with X.5.Z, which says no more; X.2.2 is a full mailbox and X.3.1 a full disk."""
    return reply.code in _TOO_MANY and (reply.enhanced is None or reply.enhanced[2:].startswith("5."))
