"""result_columns — a group of results by column, as the queries of queued.result take it

Owns: the mapping from fields of a result to parameters of sql/queries/delivery/result.sql.
Guarantees: pure; every column has one element for each result, in their order.
See: shared/postgres/array_text.py, for why arrays are written as text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queued.dsn.requested import notice
from shared.postgres.array_text import numbers, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from queued.values import Claimed, Result


def results(group: list[Result]) -> dict[str, Any]:
    """The group by column, as the query's unnest takes it."""
    outcomes = [r.outcome for r in group]
    return {
        "id": numbers(r.claimed.id for r in group),
        "messages__id": texts(r.claimed.message_id.hex for r in group),
        "token": numbers(r.claimed.token for r in group),
        "remote": texts(r.remote for r in group),
        "outcome": texts(o.kind for o in outcomes),
        "scope": texts(o.scope for o in outcomes),
        "uncertain": texts("t" if o.uncertain else "f" for o in outcomes),
        "reply_code": numbers(o.reply_code for o in outcomes),
        "reply_enhanced": texts(o.enhanced for o in outcomes),
        "reply_text": texts(o.text for o in outcomes),
        "seconds": numbers(r.duration.total_seconds() for r in group),
        "tls": texts(r.spoken.tls for r in group),
        "source": texts(r.spoken.source for r in group),
        "conversation": texts(r.spoken.conversation for r in group),
        "result": texts(r.result for r in group),
        "next_retry": texts(r.next_retry.isoformat() if r.next_retry else None for r in group),
    }


def holds(group: list[Result]) -> dict[str, Any]:
    """Why the recipients go on hold."""
    return {
        "reason": texts(r.held.reason if r.held else None for r in group),
        "quarantine": texts(r.held.quarantine if r.held else None for r in group),
    }


def claims(group: list[Result]) -> dict[str, Any]:
    """The values of the queue row at the time of the claim."""
    claimed = [r.claimed for r in group]
    return {
        "retry_count": numbers(c.retry_count for c in claimed),
        "partid": texts(c.partid for c in claimed),
        "transportid": texts(c.transportid for c in claimed),
        "jobid": texts(c.jobid for c in claimed),
        "senderdomain": texts(c.sender.domain if c.sender else None for c in claimed),
        "recipientdomain": texts(c.recipient.domain for c in claimed),
        "size": numbers(c.size for c in claimed),
    }


def notices(group: list[Result], tells: Callable[[Claimed], bool]) -> dict[str, Any]:
    """The notices to senders, for the results that need one; `tells`: whether the sender may be notified."""
    owed = [(r, kind) for r in group if (kind := notice(r)) is not None and tells(r.claimed)]
    late = {id(r) for r, kind in owed if kind == "delayed"}
    return {
        "told_id": numbers(r.claimed.id for r, _ in owed),
        "told_token": numbers(r.claimed.token for r, _ in owed),
        "notice": texts(kind for _, kind in owed),
        "until": texts(r.late.isoformat() if r.late else None for r, _ in owed),
        "late": texts("t" if id(r) in late else "f" for r in group),
    }
