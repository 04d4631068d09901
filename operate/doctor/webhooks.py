"""webhooks — the verdict on endpoints that receive events about mail

Guarantees: pure.
See: docs/how-to/send/webhooks.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Finding, Limits, Severity, listed, span
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.postgres.database import Row


def endpoints(rows: Sequence[Row], limits: Limits) -> Finding:
    """Which endpoints do not take their events; `rows` as the query webhook_list has them."""
    check = "webhook.endpoints"
    paused = [f"{row.name} is paused ({row.reason})" for row in rows if row.state == "paused"]
    failing = [
        f"{row.name} has failed for {span(row.now - row.failing)} ({row.error})"
        for row in rows
        if row.state == "enabled" and row.failing is not None and row.now - row.failing >= limits.webhook
    ]
    disabled = [f"{row.name} is disabled ({row.reason})" for row in rows if row.state == "disabled"]
    if paused or failing:
        remedy = "`pillarbox webhooks test NAME` shows the answer; `pillarbox webhooks enable NAME` tries at once"
        return Finding(check, Severity.WARN, listed([*paused, *failing, *disabled]), remedy)
    if disabled:
        return Finding(check, Severity.NOTE, listed(disabled))
    return Finding(check, Severity.OK, how_many(len(rows), "endpoint") if rows else "no endpoints")
