"""tracing — an attempt as one span of its message's trace

Owns: the name and the attributes of an attempt's span.
Guarantees: used only where tracing is on. A transaction of several recipients is one span, in the trace of their
    message.
See: shared/observe/tracing.py; docs/how-to/trace-a-message.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.observe import tracing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from queued.values import Claimed


async def traced[T](delivery: Sequence[Claimed], attempt: Awaitable[T]) -> T:
    """The result of the attempt."""
    c = delivery[0]
    told = {
        "pillarbox.id": c.message_id,
        "pillarbox.transport": c.transportid,
        "pillarbox.try": c.retry_count,
        "pillarbox.recipients": len(delivery),
    }
    with tracing.begin("queued.attempt", told, parent=c.metadata.get(tracing.KEY)) as span:
        ended = await attempt
        if isinstance(ended, list) and ended:
            kinds = sorted({result.outcome.kind for result in ended})
            span.set({"pillarbox.outcome": " ".join(kinds), "server.address": ended[0].remote})
        return ended
