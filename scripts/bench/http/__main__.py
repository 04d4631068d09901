"""http — `python -m scripts.bench.http`: measures what a message costs httpd, compared with smtpd

Owns: the order of the measurements and their rounds. One httpd and one smtpd, a process each, take the same message by
    the same smtpd.yaml into one database; they alternate in every round, so that a slow moment affects both.
Guarantees: a figure is shown only if every message of its burst was accepted and is in the queue. The last line printed
    holds the report's figures.
See: docs/explanation/benchmarks-http.md.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from scripts.bench import run, webhooks
from scripts.bench.book import percentiles
from scripts.bench.core.server import content
from scripts.bench.http.load import Burst, by_http, by_smtp, paced
from scripts.bench.http.memory import idle
from scripts.bench.http.ours import both
from scripts.bench.http.report import COST, DELAY, MEMORY, PIPELINED, RATE, SINGLE, SMTP, WEBHOOKS, Results
from scripts.bench.http.request import forms
from scripts.bench.smtpd.cpu import each
from scripts.scratch_var import emptied

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Mapping

    from scripts.bench.http.ours import Both
    from scripts.bench.http.request import Form

_progress = partial(run.progress, "bench-http")


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes of a run."""

    messages: int
    batch: int  # messages of a batch
    paced: int
    idle: int
    events: int  # of webhooks


_FULL: Final = Plan(messages=3000, batch=100, paced=1000, idle=1000, events=50_000)
_QUICK: Final = Plan(messages=200, batch=10, paced=20, idle=20, events=400)
_SIZE: Final = 4096
_SESSIONS: Final = 20


def main(arguments: list[str] | None = None) -> int:
    """Measure; the exit status."""
    options = run.parser("http", "Measure sending by HTTP.").parse_args(arguments)
    return run.run("bench-http", options, lambda: _measured(options), Results({}), "benchmarks-http.md")


def _measured(options: argparse.Namespace) -> Results:
    with emptied(options.var):
        return asyncio.run(_measure(options, _QUICK if options.quick else _FULL))


async def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    results = Results({"machine": run.machine(), "rounds": str(options.rounds)})
    async with both(options.var) as ours:
        results.settings |= await ours.smtpd.settings()
        _progress("memory")
        results.add(MEMORY, f"{plan.idle} idle connections", **await idle(ours, plan.idle, content(_SIZE)))
        await ours.smtpd.forget()
        text = content(_SIZE)
        for number in range(1, options.rounds + 1):
            _progress(f"round {number} of {options.rounds}")
            await _round(results, ours, plan, text, forms(text, plan.batch))
        _progress("webhooks")
        events = await webhooks.measure(ours.conninfo, "bench", plan.events, webhooks.BATCH)
        results.add(WEBHOOKS, f"{plan.events} events", **{"events/s": events.rate, "worker, us": events.cost})
    return results


async def _round(results: Results, ours: Both, plan: Plan, text: bytes, requests: Mapping[str, Form]) -> None:
    burst = Burst(plan.messages, _SESSIONS)
    for name in (SMTP, PIPELINED):
        await _cell(results, ours, name, burst, by_smtp(ours.smtpd.port, burst, text, at_once=name == PIPELINED))
    for name, form in requests.items():
        rate = await _cell(results, ours, name, burst, by_http(ours.port, burst, ours.key, form))
        if name == SINGLE:
            found = percentiles(await paced(ours.port, Burst(plan.paced, _SESSIONS), ours.key, form, rate / 2))
            results.add(DELAY, SINGLE, **found)
            await ours.smtpd.agrees(plan.paced, _SIZE // 2)
            await ours.smtpd.forget()


async def _cell(results: Results, ours: Both, name: str, burst: Burst, sending: Awaitable[float]) -> float:
    """The rate of a burst, which is in the queue then and forgotten."""
    before = ours.spent()
    rate = await sending
    costs = each(before, ours.spent(), burst.messages)
    await ours.smtpd.agrees(burst.messages, _SIZE // 2)
    await ours.smtpd.forget()
    daemon = "smtpd" if name in {SMTP, PIPELINED} else "httpd"
    results.add(COST, name, daemon=1e3 * costs[daemon], PostgreSQL=1e3 * costs["PostgreSQL"])
    results.add(RATE, name, **{"messages/s": rate})
    return rate


if __name__ == "__main__":
    sys.exit(main())
