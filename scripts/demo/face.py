"""face — the display of `pillarbox demo`

Owns: the live table of partitions and the progress of mail; plain lines where there is no terminal.
Guarantees: at most two queries per second.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from shared.how_many import how_many
from shared.postgres import database

if TYPE_CHECKING:
    from scripts.demo.ledger import Ledger

_COLUMNS = ("ready", "sending", "deferred", "held")
_LOOKS = 0.5  # seconds between two


class Face:
    """The picture of one run."""

    def __init__(self, ledger: Ledger, messages: int) -> None:
        self._ledger = ledger
        self._messages = messages
        self._console = Console()
        self._refused = 0
        self._began = monotonic()
        self.submitted = 0
        self.submitted_in = 0.0

    def say(self, what: str) -> None:
        """A step of the start."""
        self._console.print(f"[dim]{monotonic() - self._began:6.1f} s[/]  {what}", highlight=False)

    def refused(self, sender: str, recipient: str, reply: str) -> None:
        """A recipient smtpd did not take: shown, the first few times."""
        self._refused += 1
        if self._refused <= 5:  # noqa: PLR2004 - enough to see what is wrong
            self.say(f"refused {sender} → {recipient}: {reply}")

    async def watch(self, connection: database.Connection) -> None:
        """Show progress until cancelled."""
        self.say(f"submitting {how_many(self._messages, 'message')}")
        progress = Progress(
            TextColumn("{task.description:>9}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
        )
        submitted = progress.add_task("submitted", total=self._messages)
        arrived = progress.add_task("arrived", total=None)
        try:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                while True:
                    rows = await database.fetch(connection, "inspect_partitions")
                    progress.update(submitted, completed=self.submitted)
                    accepted = len(self._ledger.accepted)
                    progress.update(arrived, completed=len(self._ledger.arrived), total=accepted)
                    if self._console.is_terminal:
                        live.update(Group(_table(rows), progress), refresh=True)
                    else:
                        arrivals = f"{len(self._ledger.arrived)} of {how_many(accepted, 'recipient')}"
                        self.say(f"{self.submitted} submitted, {arrivals} arrived")
                    await asyncio.sleep(_LOOKS)
        finally:
            await connection.close()

    async def end(self, conninfo: str) -> None:
        """The summary: who delivered what, and how fast."""
        took = monotonic() - self._began
        connection = await database.connect(conninfo, "pillarbox demo")
        try:
            rows = await database.fetch(connection, "inspect_workers")
        finally:
            await connection.close()
        table = Table("worker", "partitions", "recipients", title="delivered by", title_justify="left")
        for row in rows:
            table.add_row(row.worker.split("@")[0], ", ".join(row.partids), str(row.recipients))
        self._console.print(table)
        rate = self.submitted / self.submitted_in if self.submitted_in else 0.0
        self.say(f"{how_many(self.submitted, 'message')} accepted in {self.submitted_in:.1f} s ({rate:.0f}/s)")
        self.say(f"everything done after {took:.1f} s")


def _table(rows: list[database.Row]) -> Table:
    """Partitions by leaf."""
    table = Table("leaf", "partition", *_COLUMNS, title="queue", title_justify="left")
    for leaf, group in groupby(rows, key=lambda row: row.leaf):
        for index, row in enumerate(group):
            name = leaf.removeprefix("pillarbox.") if index == 0 else ""
            table.add_row(name, row.partid or "NULL", *(str(getattr(row, column)) for column in _COLUMNS))
    return table
