"""bench_smtpd — `python -m scripts.bench_smtpd`: how fast smtpd accepts mail, beside Debian's Postfix, in one run

Owns: the order of the measurements and their rounds. Both servers run on this machine, their queues on the same disk,
    both flush a message before they say 250; they take turns in every cell, so that a slow moment meets both.
Called by: `make bench-smtpd`.
Guarantees: a figure is shown only if every message of its burst was answered 250 and is in the queue; the last line
    printed is the one of scripts.bench_smtpd_report.FIGURES. What cannot be measured is `unmeasured`, with the reason.
See: docs/explanation/benchmarks.md; smtp-source(1).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from scripts.bench_core_pgqueuer import CannotMeasureError
from scripts.bench_smtpd_load import Burst, final_replies, rate
from scripts.bench_smtpd_memory import idle, large
from scripts.bench_smtpd_ours import smtpd
from scripts.bench_smtpd_postfix import postfix
from scripts.bench_smtpd_report import (
    OURS,
    POSTFIX,
    Results,
    accept_table,
    cpu_table,
    last_line,
    named,
    reply_table,
    row,
)
from shared import embedded
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from scripts.bench_smtpd_ours import Smtpd
    from scripts.bench_smtpd_postfix import Postfix

_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class Plan:
    """How much of everything."""

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
    parser = argparse.ArgumentParser(prog="python -m scripts.bench_smtpd", description="Measure acceptance.")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of every measurement (default 3)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: proves the benchmark, not speed")
    parser.add_argument("--processes", type=int, metavar="N", help="of smtpd, instead of its default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value of every round there")
    parser.add_argument("--var", type=Path, default=Path("var/bench-smtpd"), metavar="DIR", help="emptied first")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever gives up on us leaves nobody behind
    plan = _QUICK if options.quick else _FULL
    try:
        embedded.stop(options.var)
        shutil.rmtree(options.var, ignore_errors=True)
        options.var.mkdir(parents=True)
        try:
            results = asyncio.run(_measure(options, plan))
        finally:
            embedded.stop(options.var)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except PillarboxError as error:
        sys.stderr.write(f"bench-smtpd: {error}\n")
        return error.exit_status
    results.compare()
    if options.json:
        options.json.write_text(json.dumps(results.document(), indent=1) + "\n", encoding="utf-8")
    results.show(Console())
    print(last_line(results.figures()))
    return 0


async def _measure(options: argparse.Namespace, plan: Plan) -> Results:
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs"
    results = Results({"machine": machine, "rounds": str(options.rounds)})
    changes: dict[str, Any] = {} if options.processes is None else {"processes": options.processes}
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(smtpd(options.var, "smtpd", changes))
        results.settings |= await ours.settings()
        results.settings["processes"] = str(max(1, len(ours.processes()) - 1))
        try:
            peer = await stack.enter_async_context(postfix(options.var / "postfix", _free_port()))
            results.settings["Postfix"] = peer.version
        except CannotMeasureError as error:
            peer = None
            results.notes.append(f"Postfix: unmeasured; {error}")
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
    costs = _each(before, ours.spent(), burst)
    await ours.agrees(burst.messages, burst.size)
    await ours.forget()
    if peer is not None:
        before = peer.spent()
        figures[POSTFIX] = await rate(peer.port, burst)
        costs |= _each(before, peer.spent(), burst)
        _all_held(peer, burst)
    what = row(burst.sessions, reuse=burst.reuse)
    results.add(accept_table(burst.size), what, **figures)
    results.add(cpu_table(burst.size), what, **costs)


def _each(before: dict[str, float], after: dict[str, float], burst: Burst) -> dict[str, float]:
    """Milliseconds of processor time for each message."""
    return {name: 1e3 * (after[name] - before[name]) / burst.messages for name in after}


async def _replies(results: Results, ours: Smtpd, peer: Postfix | None, burst: Burst) -> None:
    servers: list[tuple[str, int]] = [(OURS, ours.port), *([(POSTFIX, peer.port)] if peer else [])]
    figures: dict[str, float] = {}
    for name, port in servers:
        seconds = await final_replies(port, burst)
        for percent in (50, 99):
            figures[f"{name} p{percent}"] = 1e3 * seconds[min(len(seconds) - 1, len(seconds) * percent // 100)]
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


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port: int = door.getsockname()[1]
    return port


def _progress(text: str) -> None:
    sys.stderr.write(f"bench-smtpd: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
