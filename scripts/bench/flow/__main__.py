"""flow — `python -m scripts.bench.flow`: measures mail from acceptance to delivery, compared with Debian's Postfix

Owns: the order of the measurements and their rounds. Both systems run on this machine with their queues on the same
    disk, flush a message before they reply 250, and deliver to the same smtp-sink. They alternate in every cell, so
    that a slow moment affects both.
Guarantees: a figure is shown only if every message of its burst was answered 250 and every recipient is recorded as
    delivered. The last line printed holds the report's figures. A figure that cannot be measured is `unmeasured`, with
    the reason. Postfix removes a message when it has finished with it, so our time also runs until the last body is
    deleted. Watching costs both little: only new lines of Postfix's log are read.
See: docs/explanation/benchmarks-flow.md; smtp-source(1), smtp-sink(1).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.bench import run
from scripts.bench.book import POSTFIX, named, percentiles
from scripts.bench.flow.latency import first_octets, next_hop
from scripts.bench.flow.ours import running
from scripts.bench.flow.report import DRAIN, LATENCY, OURS, SWEEP, Results, cpu_table, flow_table, sweep_row
from scripts.bench.sink import sink
from scripts.bench.smtpd.cpu import each
from scripts.bench.smtpd.postfix import beside, relay
from scripts.bench.source import DOMAINS, submit
from scripts.scratch_var import emptied
from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse

    from scripts.bench.flow.ours import Ours
    from scripts.bench.smtpd.postfix import Postfix

_SESSIONS: Final = 20
_PATIENCE: Final = 600.0  # seconds that a burst may take
_LOOK: Final = 0.02
_progress = partial(run.progress, "bench-flow")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run."""

    messages: dict[int, dict[int, int]]  # recipients → octets → messages
    drain: int
    latencies: int


_FULL: Final = Plan(
    messages={1: {1024: 3000, 4096: 3000, 102_400: 1000}, 20: {1024: 400, 4096: 400, 102_400: 200}},
    drain=6000,
    latencies=200,
)
_QUICK: Final = Plan(messages={1: {4096: 60}, 20: {4096: 10}}, drain=100, latencies=5)


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    options = run.parser("flow", "Measure mail from acceptance to delivery.").parse_args(arguments)
    return run.run("bench-flow", options, lambda: _measured(options), Results({}), "benchmarks-flow.md")


def _measured(options: argparse.Namespace) -> Results:
    with emptied(options.var):
        return asyncio.run(_measure(options, _QUICK if options.quick else _FULL))


async def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    results = Results({"machine": run.machine(), "rounds": str(options.rounds)})
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(sink())
        ours = await stack.enter_async_context(running(options.var, port, {}))
        results.settings |= {**await ours.settings(), "workers": str(len(ours.workers))}
        peer = await stack.enter_async_context(beside(results, options.var / "postfix", relay(port)))
        for number in range(1, options.rounds + 1):
            for recipients, sizes in plan.messages.items():
                for size, messages in sizes.items():
                    _progress(f"round {number} of {options.rounds}: {named(size)}, recipients: {recipients}")
                    await _flow(results, ours, peer, Burst(messages, size, recipients))
            _progress(f"round {number} of {options.rounds}: full queue")
            results.add(DRAIN, named(4096), **{OURS: await ours.drain(plan.drain, 4096)})
            await ours.forget()
    _progress("latency")
    async with next_hop() as hop, running(options.var, hop.port, {"pooling": {"transactions": 1}}) as ours:
        for _ in range(options.rounds):
            mailboxes = tuple(f"sink@{domain}" for domain in DOMAINS)
            seconds = await first_octets(ours.port, hop, plan.latencies, mailboxes)
            results.add(LATENCY, named(4096), **percentiles(seconds))
            await ours.idle()
    return results


@dataclass(frozen=True, slots=True)
class Burst:
    """A number of messages of `size` octets for `recipients` each; half of them go to each domain."""

    messages: int
    size: int
    recipients: int

    @property
    def deliveries(self) -> int:
        """The number of recipients of all messages."""
        return self.messages * self.recipients


async def _flow(results: Results, ours: Ours, peer: Postfix | None, burst: Burst) -> None:
    archived, before = await ours.archived(), ours.spent()
    began = monotonic()
    await _send(ours.port, burst)
    await ours.idle()
    delivered = monotonic()
    await ours.sweep()
    ended = monotonic()
    figures = {OURS: burst.messages / (ended - began)}
    costs = each(before, ours.spent(), burst.messages)
    await ours.agrees(archived, burst.deliveries)
    await ours.forget()
    if peer is not None:
        before = peer.spent()
        sent, removed = peer.sent()
        began = monotonic()
        await _send(peer.port, burst)
        await _removed(peer, removed + burst.messages)
        figures[POSTFIX] = burst.messages / (monotonic() - began)
        costs |= each(before, peer.spent(), burst.messages)
        found = peer.sent()[0] - sent
        if found != burst.deliveries:
            raise PillarboxError(f"Postfix: the ledger does not agree: {found} sent, expected {burst.deliveries}")
    results.compared(flow_table(burst.recipients), named(burst.size), **figures)
    swept = 1e3 * (ended - delivered) / burst.messages
    results.add(SWEEP, sweep_row(burst.size, burst.recipients), **{OURS: swept})
    results.add(cpu_table(burst.recipients), named(burst.size), **costs)


async def _removed(peer: Postfix, messages: int) -> None:
    """Return when Postfix has removed this many messages since its start."""
    deadline = monotonic() + _PATIENCE
    while peer.sent()[1] < messages:
        if monotonic() > deadline:
            raise PillarboxError(f"Postfix: the queue is not empty after {_PATIENCE:.0f} seconds")
        await asyncio.sleep(_LOOK)


async def _send(port: int, burst: Burst) -> None:
    """Send the burst with one smtp-source for each domain."""
    share = len(DOMAINS)
    counts = ("-s", str(_SESSIONS // share), "-m", str(burst.messages // share), "-l", str(burst.size))
    several = ("-r", str(burst.recipients)) if burst.recipients > 1 else ()
    await asyncio.gather(*(submit(port, domain, "-d", *counts, *several) for domain in DOMAINS))


if __name__ == "__main__":
    sys.exit(main())
