"""metrics_children — the counts of several processes of smtpd, or of httpd, as one

Owns: the last report of each child, and the counts of children that are gone.
Guarantees: a counter of the sum never falls while the daemon runs: a child that dies leaves its last report, at most
    smtpd.process.child_channel.ALIVE seconds old. A child that does not answer within metrics.timeout counts by its
    last report.
See: smtpd/process/channel.py
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shared.observe.metrics_totals import Reading, Totals
from smtpd.process.metrics import processes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from shared.observe.queued_table import Table


class Reports:
    """The figures of all children (smtpd.process.metrics.ProcessFigures)."""

    def __init__(
        self, wanted: int, ask: Callable[[], Sequence[str]], patience: float, daemon: str, table: Table
    ) -> None:
        """`ask` asks every child that serves for a report, and returns their names; `patience` in seconds."""
        self._daemon, self._table = daemon, table
        self._patience = patience
        self._wanted = wanted
        self._ask = ask
        self._gone = Totals(table)
        self._last: dict[str, Mapping[str, Any]] = {}
        self._awaited: set[str] = set()
        self._answered = asyncio.Event()
        self._serving = 0

    def heard(self, process: str, report: Mapping[str, Any]) -> None:
        """Take the report of a child."""
        self._last[process] = report
        self._awaited.discard(process)
        if not self._awaited:
            self._answered.set()

    def gone(self, process: str) -> None:
        """A child has ended; the next one of its name counts from nothing."""
        last = self._last.pop(process, None)
        if last is not None:
            self._gone.add(last["snapshot"])
        self._awaited.discard(process)
        if not self._awaited:
            self._answered.set()

    async def totals(self, own: Totals) -> Totals:
        """The sum over those that are here, those that are gone, and ourselves."""
        await self._gather()
        found = Totals(self._table)
        for each in (own.snapshot(), self._gone.snapshot(), *(last["snapshot"] for last in self._last.values())):
            found.add(each)
        return found

    async def readings(self) -> list[Reading]:
        """The gauges of each child, as `totals` has just heard them."""
        found = processes(self._wanted, self._serving, self._daemon)
        for last in self._last.values():
            found += [Reading(name, value, tuple(labels)) for name, value, labels in last["readings"]]
        return found

    async def trouble(self) -> str | None:
        """Why no mail would be accepted: no process serves, or none of them could commit."""
        await self._gather()
        if not self._serving:
            return "no process serves"
        troubles = [last["trouble"] for last in self._last.values()]
        return troubles[0] if troubles and all(troubles) else None

    async def _gather(self) -> None:
        self._answered.clear()
        asked = self._ask()
        self._serving = len(asked)
        self._awaited = set(asked)
        if self._awaited:
            try:
                async with asyncio.timeout(self._patience):
                    await self._answered.wait()
            except TimeoutError:
                self._awaited.clear()
