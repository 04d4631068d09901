"""smtpd — `python -m scripts.bench.smtpd`: measures how fast smtpd accepts mail, compared with Debian's Postfix

Owns: the order of the measurements and their rounds. Both servers run on this machine with their queues on the same
    disk and flush a message before they reply 250. They alternate in every cell, so that a slow moment affects both.
Guarantees: a figure is shown only if every message of its burst was answered 250 and is in the queue. The last line
    printed holds the report's figures. A figure that cannot be measured is `unmeasured`, with the reason.
See: docs/explanation/benchmarks.md; smtp-source(1).
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scripts.bench import run
from scripts.bench.book import POSTFIX, named, percentiles
from scripts.bench.smtpd.cpu import each
from scripts.bench.smtpd.load import Burst, final_replies, rate
from scripts.bench.smtpd.memory import idle, large
from scripts.bench.smtpd.ours import smtpd
from scripts.bench.smtpd.postfix import beside
from scripts.bench.smtpd.report import OURS, Results, accept_table, cpu_table, reply_table, row
from scripts.scratch_var import emptied
from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse

    from scripts.bench.smtpd.ours import Smtpd
    from scripts.bench.smtpd.postfix import Postfix

_progress = partial(run.progress, "bench-smtpd")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run."""

    messages: dict[int, dict[int, int]]  # octets → sessions → messages
    idle: int
    large: tuple[int, int]  # messages, octets


_FULL: Final = Plan(
    messages={
        1024: {1: 1000, 20: 4000, 100: 4000},
        4096: {1: 1000, 20: 4000, 100: 4000},
        102_400: {1: 300, 20: 1000, 100: 1000},
        1_048_576: {1: 60, 20: 200, 100: 200},
    },
    idle=1000,
    large=(20, 50 * 2**20),
)
_QUICK: Final = Plan(messages={4096: {1: 20, 20: 100}, 102_400: {20: 40}}, idle=20, large=(2, 2**20))


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    parser = run.parser("smtpd", "Measure acceptance.")
    parser.add_argument("--processes", type=int, metavar="N", help="number of smtpd processes, instead of the default")
    options = parser.parse_args(arguments)
    return run.run("bench-smtpd", options, lambda: _measured(options), Results({}), "benchmarks-acceptance.md")


def _measured(options: argparse.Namespace) -> Results:
    with emptied(options.var):
        return asyncio.run(_measure(options, _QUICK if options.quick else _FULL))


async def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    results = Results({"machine": run.machine(), "rounds": str(options.rounds)})
    changes: dict[str, Any] = {} if options.processes is None else {"processes": options.processes}
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(smtpd(options.var, "smtpd", changes))
        results.settings |= await ours.settings()
        results.settings["processes"] = str(max(1, len(ours.processes()) - 1))
        peer = await stack.enter_async_context(beside(results, options.var / "postfix"))
        for number in range(1, options.rounds + 1):
            for size, bursts in plan.messages.items():
                _progress(f"round {number} of {options.rounds}: {named(size)}")
                for sessions, messages in bursts.items():
                    for reuse in (True, False):
                        await _accept(results, ours, peer, Burst(messages, size, sessions, reuse))
                    await _replies(results, ours, peer, Burst(messages // 2, size, sessions))
    await _memory(options, plan, results, changes)
    return results


async def _accept(results: Results, ours: Smtpd, peer: Postfix | None, burst: Burst) -> None:
    before = ours.spent()
    figures = {OURS: await rate(ours.port, burst)}
    costs = each(before, ours.spent(), burst.messages)
    await ours.agrees(burst.messages, burst.size)
    await ours.forget()
    if peer is not None:
        before = peer.spent()
        figures[POSTFIX] = await rate(peer.port, burst)
        costs |= each(before, peer.spent(), burst.messages)
        _all_held(peer, burst)
    what = row(burst.sessions, reuse=burst.reuse)
    results.compared(accept_table(burst.size), what, **figures)
    results.add(cpu_table(burst.size), what, **costs)


async def _replies(results: Results, ours: Smtpd, peer: Postfix | None, burst: Burst) -> None:
    servers: list[tuple[str, int]] = [(OURS, ours.port), *([(POSTFIX, peer.port)] if peer else [])]
    figures: dict[str, float] = {}
    for name, port in servers:
        found = percentiles(await final_replies(port, burst))
        figures |= {f"{name} {percentile}": value for percentile, value in found.items()}
    await ours.agrees(burst.messages, burst.size)
    await ours.forget()
    if peer is not None:
        _all_held(peer, burst)
    results.add(reply_table(burst.size), row(burst.sessions, reuse=burst.reuse), **figures)


async def _memory(options: argparse.Namespace, plan: Plan, results: Results, changes: dict[str, Any]) -> None:
    _progress("memory")
    messages, size = plan.large
    async with smtpd(options.var, "memory", changes) as ours:
        results.add("memory of smtpd", f"{plan.idle} idle sessions", **await idle(ours, plan.idle))
    phases = {"data": {"maxsize": 2 * size}}
    server = {"id": "bench", "hostname": "bench.pillarbox.example", "listeners": [{"port": 0}], "phases": phases}
    async with smtpd(options.var, "large", {**changes, "servers": [server]}) as ours:
        found = await large(ours, messages, size)
        results.add("memory of smtpd", f"{messages} messages of {named(size)} at once", **found)
        await ours.forget()


def _all_held(peer: Postfix, burst: Burst) -> None:
    held = peer.held(burst.size)
    if held != burst.messages:
        raise PillarboxError(f"Postfix: the ledger does not agree: {held} held, expected {burst.messages}")
    peer.forget()


if __name__ == "__main__":
    sys.exit(main())
