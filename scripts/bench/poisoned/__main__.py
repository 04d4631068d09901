"""poisoned — `python -m scripts.bench.poisoned`: measures healthy mail beside poisoned domains

Owns: the order of a run: healthy mail alone, then beside each poison: domains whose only exchanger accepts connections
    and never greets, domains whose name servers do not answer, and domains that share 500 such exchangers.
Guarantees: everything is in one run, with the default configuration except addresses and DNS. Healthy mail arrives by
    SMTP at a fixed rate; its time runs from smtpd's 250 to the 250 of the next hop, which replies at once. The ratio
    divides the 99th percentile beside the worst poison by the 99th percentile alone. It is `unmeasured` if healthy mail
    arrived slower than _LEAST per second, if its 99th percentile alone is above _QUIET, or if a poison's messages were
    gone before the end. A healthy message that does not arrive ends the run.
See: docs/explanation/admission.md; docs/explanation/benchmarks-flow.md.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import monotonic
from typing import TYPE_CHECKING, ClassVar, Final

from scripts.bench import run
from scripts.bench.book import Book
from scripts.bench.core.server import LEAVES, PARTITIONS, content
from scripts.bench.flow.ours import running
from scripts.bench.poisoned.strangers import outside
from scripts.bench.smtpd.load import paced, raise_open_files
from scripts.scratch_var import emptied
from shared.errors import PillarboxError
from shared.mail.message import new_message_id
from shared.postgres import database

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from scripts.bench.flow.ours import Ours
    from scripts.bench.poisoned.strangers import Outside

_LEAST: Final = 200.0  # healthy messages per second below which a figure does not count
_QUIET: Final = 50.0  # milliseconds of the 99th percentile alone above which a figure does not count
_RATE: Final = 220  # healthy messages sent per second
_DOMAINS: Final = 10
_SESSIONS: Final = 20
_SIZE: Final = 4096
_PATIENCE: Final = 120.0
_LOOK: Final = 0.1
_TABLE: Final = "healthy mail, from smtpd's 250 to the next hop's, ms"
_QUIETLY: Final = "alone"
#: Domain names; # is replaced by a number.
_POISONS: Final = {
    "beside one host that never greets": "d#.dead.test",
    "beside silent name servers": "s#.test",
    "beside 500 hosts that never greet": "d#.many.test",
}
_progress = partial(run.progress, "bench-poisoned")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run."""

    poisoned: int  # domains
    seconds: float  # of healthy mail in each measurement


_FULL: Final = Plan(poisoned=10_000, seconds=15.0)
_QUICK: Final = Plan(poisoned=600, seconds=3.0)


@dataclass(slots=True)
class Results(Book):
    """Every cell of a run."""

    columns: ClassVar[tuple[str, ...]] = ("p50", "p99", "messages/s", "first pass s")

    def by_round(self) -> dict[str, Sequence[float]]:
        """The ratio of the worst poison in each round, both percentiles in milliseconds, and the lowest rate."""
        quiet = self.rounds(_TABLE, _QUIETLY, "p99")
        poisoned = [max(each) for each in zip(*(self.rounds(_TABLE, name, "p99") for name in _POISONS), strict=False)]
        rates = [
            min(each)
            for each in zip(*(self.rounds(_TABLE, name, "messages/s") for name in (_QUIETLY, *_POISONS)), strict=False)
        ]
        holds = bool(poisoned) and not self.notes and median(quiet) <= _QUIET and median(rates) >= _LEAST
        return {
            "poisoned_p99_ratio": [w / q for w, q in zip(poisoned, quiet, strict=True)] if holds else [],
            "quiet_p99_ms": quiet,
            "poisoned_p99_ms": poisoned,
            "healthy_messages_s": rates,
        }


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    options = run.parser("poisoned", "Measure healthy mail beside poisoned domains.").parse_args(arguments)
    return run.run("bench-poisoned", options, lambda: _measured(options), Results({}), "benchmarks-flow.md")


def _measured(options: argparse.Namespace) -> Results:
    raise_open_files()
    return asyncio.run(_measure(options, _QUICK if options.quick else _FULL))


async def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    results = Results({"machine": run.machine(), "poisoned domains": str(plan.poisoned)})
    async with AsyncExitStack() as stack:
        there = await stack.enter_async_context(outside())
        transport = {"connection": {"mode": "mx", "port": there.port}, "allow": {"private": True}}
        routing = {"dns": {"servers": [f"127.0.0.1:{there.dns}"]}}
        for number in range(1, options.rounds + 1):
            with emptied(options.var):
                async with running(options.var, there.port, transport, routing=routing) as ours:
                    results.settings |= await ours.settings()
                    await _round(results, ours, there, plan, f"round {number} of {options.rounds}")
    return results


async def _round(results: Results, ours: Ours, there: Outside, plan: Plan, progress: str) -> None:
    """Healthy mail alone, then beside each poison, with the same daemons."""
    healthy = Healthy(ours, there)
    await healthy.send(2.0)  # warms up
    _progress(f"{progress}: {_QUIETLY}")
    results.add(_TABLE, _QUIETLY, **await healthy.send(plan.seconds))
    for name, domain in _POISONS.items():
        _progress(f"{progress}: {name}")
        took = await _poison(ours, domain, plan.poisoned)
        figures = await healthy.send(plan.seconds)
        results.add(_TABLE, name, **figures, **{"first pass s": took})
        await _antidote(ours, name, plan.poisoned, results)
        await ours.forget()


class Healthy:
    """Sends healthy mail and measures its delivery."""

    def __init__(self, ours: Ours, there: Outside) -> None:
        self._ours = ours
        self._there = there
        self._number = 0

    async def send(self, seconds: float) -> dict[str, float]:
        """Send at a fixed rate for `seconds`; percentiles in milliseconds, and the rate."""
        there, first, count = self._there, self._number + 1, int(seconds * _RATE)
        there.arrived.clear()
        self._number += count
        recipients = [f"h{number}@good{number % _DOMAINS}.test" for number in range(first, first + count)]
        async with asyncio.timeout(_PATIENCE):
            accepted, lasted = await paced(self._ours.port, recipients, _RATE, _SESSIONS, content(_SIZE) + b".\r\n")
        rate = count / lasted
        deadline = monotonic() + _PATIENCE
        while len(there.arrived) < count:
            if monotonic() > deadline:
                raise PillarboxError(f"{count - len(there.arrived)} of {count} healthy messages did not arrive")
            await asyncio.sleep(_LOOK)
        took = sorted(max(0.0, there.arrived[recipient.encode()] - at) * 1000 for recipient, at in accepted.items())
        return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "messages/s": rate}


async def _poison(ours: Ours, domain: str, count: int) -> float:
    """Queue a message for each of `count` domains; seconds until workers have tried all of them."""
    ids, body = [new_message_id() for _ in range(count)], content(_SIZE)
    async with ours.connection.transaction():
        await database.fetch(ours.connection, "bench_messages", ids=ids, body=body)
        await database.fetch(
            ours.connection, "bench_poison", ids=ids, size=len(body), domain=domain, partitions=PARTITIONS
        )
        partids = [partid for those in LEAVES.values() for partid in those]
        await database.fetch(ours.connection, "wakeup_notify", partids=partids)
    began = monotonic()
    while True:
        [found] = await database.fetch(ours.connection, "bench_poison_seen")
        if found.seen + found.taken >= count:
            return monotonic() - began
        if monotonic() > began + _PATIENCE:
            raise PillarboxError(
                f"workers have tried {found.seen} of {count} poisoned messages after {_PATIENCE:.0f} seconds"
            )
        await asyncio.sleep(_LOOK)


async def _antidote(ours: Ours, name: str, count: int, results: Results) -> None:
    """Delete the poisoned messages; add a note if some were gone already."""
    [found] = await database.fetch(ours.connection, "bench_poison_seen")
    if found.there < count:
        results.notes.append(f"{name}: {count - found.there} poisoned messages were gone before the end")
    await database.fetch(ours.connection, "bench_poison_empty")


if __name__ == "__main__":
    sys.exit(main())
