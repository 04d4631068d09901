"""questions — the questions of a report as SQL on PostgreSQL, for comparison

Owns: the list of questions, sql/queries/analytics_ask_*.sql, and the time of each.
Guarantees: each question is one statement, as fast for PostgreSQL as we could write it: one scan of the table answers
    for four dimensions. Spark's further work (clusters, season, forecast, soundness) is left out.
Raises: DatabaseUnavailable.
See: docs/explanation/analytics.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from scripts.analytics.source import copying

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

QUESTIONS: Final = (
    "analytics_ask_deliverability",
    "analytics_ask_waiting",
    "analytics_ask_steps",
    "analytics_ask_wordings",
    "analytics_ask_throttling",
    "analytics_ask_suppression",
    "analytics_ask_encryption",
    "analytics_ask_weights",
    "analytics_ask_quarantine",
    "analytics_ask_volume",
)
_PATIENCE: Final = timedelta(hours=1)


def ask(
    conninfo: str, since: date, until: date, top: int, on_question: Callable[[str, float], object] = lambda *_: None
) -> dict[str, list[Any]]:
    """The rows of each question for the days from `since` to before `until`; `on_question` gets its seconds."""
    values = {"since": datetime.combine(since, time(), UTC), "until": datetime.combine(until, time(), UTC), "top": top}
    found = {}
    with copying.session(conninfo, timeout=_PATIENCE, parallel=True) as session:
        for question in QUESTIONS:
            begun = monotonic()
            found[question] = copying.rows(session, question, **values)
            on_question(question, monotonic() - begun)
    return found
