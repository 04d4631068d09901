"""report — the results of a run of sending by HTTP

Owns: the names of its tables and rows, and the figures of the last line. Pure.
Guarantees: as in scripts.bench.book. A ratio divides processor time of daemons, which depends little on other work on
    the machine: smtpd's for a message by httpd's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scripts.bench.book import Book, ratios

if TYPE_CHECKING:
    from collections.abc import Sequence

COST: Final = "processor time a message, us"
RATE: Final = "accepted messages/s"
DELAY: Final = "answer at half that rate, ms"
MEMORY: Final = "memory of httpd"
WEBHOOKS: Final = "webhooks"
SMTP: Final = "SMTP"
PIPELINED: Final = "SMTP, MAIL to DATA written at once"
SINGLE: Final = "HTTP, raw: message/rfc822"
BASE64: Final = "HTTP, raw: base64 in JSON"
BATCH: Final = "HTTP, raw, a batch in a request"
PARTS: Final = "HTTP, in parts: MIME is composed"


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run."""

    def by_round(self) -> dict[str, Sequence[float]]:
        """The figures; 1 is as much processor time as SMTP, 2 half as much."""
        smtp = self.rounds(COST, SMTP, "daemon")
        webhooks = [values for (table, _), cell in self.cells.items() if table == WEBHOOKS for values in [cell.values]]
        return {
            "http_vs_smtp": ratios(smtp, self.rounds(COST, SINGLE, "daemon")),
            "batch_vs_smtp": ratios(smtp, self.rounds(COST, BATCH, "daemon")),
            "http_p99_ms": self.rounds(DELAY, SINGLE, "p99"),
            "webhook_events_s": webhooks[0]["events/s"] if webhooks else [],
        }

    def worst(self) -> list[str]:
        """The other ways of sending, as ratios, and what a batch gains."""
        smtp, fast = (self.median(COST, name, "daemon") for name in (SMTP, PIPELINED))
        single, batch = (self.median(RATE, name, "messages/s") for name in (SINGLE, BATCH))
        said = []
        for name in (SINGLE, BASE64, BATCH, PARTS):
            cost = self.median(COST, name, "daemon")
            if smtp and fast and cost:
                said.append(f"{name}: {smtp / cost:.2f} of SMTP, {fast / cost:.2f} of SMTP with commands at once")
        if single and batch:
            said.append(f"a batch has {batch / single:.2f} times the rate of single requests")
        return said
