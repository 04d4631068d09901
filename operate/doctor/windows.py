"""windows — a verdict on delivery windows that open only after mail expires

Owns: the longest time for which a transport is closed, compared with the greatest age of its mail.
Guarantees: pure. Zones have the offset that they have now.
See: queued/pacing/windows.py; docs/explanation/retries.md, "Mail that waits".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed, span
from queued.pacing.windows import longest_closed

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from shared.config.queued.transport import Transport

_CHECK: Final = "retry.windows"


def windows(transports: Iterable[Transport], now: datetime) -> Finding:
    """One finding about all transports of queued.yaml."""
    short = []
    for transport in transports:
        closed = longest_closed(transport.windows, now)
        for key in ("age", "nullage"):
            age = getattr(transport.retry, key)
            if closed and age <= closed:
                short.append(f"{transport.id} is closed for {span(closed)}, its retry.{key} is {span(age)}")
    if not short:
        return Finding(_CHECK, Severity.OK, "mail lives longer than windows are closed")
    return Finding(_CHECK, Severity.WARN, listed(short), "raise retry.age and retry.nullage, or open more windows")
