"""test_watchdog — which attempts are cut off so that other mail can be claimed

Owns: proofs about queued/watchdog.py's `relieve`; tests/integration/attacks has those of a stuck attempt.
"""

from __future__ import annotations

from time import monotonic

from queued.values import Lease
from queued.watchdog import AttemptStep, Phase, Watch


def begun(watch: Watch, phase: Phase | None, *, still: float, ago: float = 0.0) -> AttemptStep:
    """An attempt that has stood still in this phase for so long, and began even longer ago."""
    now = monotonic()
    step = AttemptStep(Lease(now + 900), 3600.0, 3600.0)
    step.phase, step.moved, step.begun = phase, now - still, now - still - ago
    watch.begin(step)
    return step


def cut(watch: Watch, *attempts: AttemptStep) -> list[bool]:
    watch.relieve(monotonic())
    return [bool(each.stuck) for each in attempts]


async def test_those_that_stand_still_are_cut_off() -> None:
    watch = Watch()
    attempts = [begun(watch, phase, still=11.0) for phase in ("greeting", "mail", "rcpt", "data", None)]
    assert cut(watch, *attempts) == [True] * 5


async def test_one_that_moves_stays_and_so_does_one_that_has_sent_content() -> None:
    watch = Watch()
    attempts = [
        begun(watch, "greeting", still=9.0),
        begun(watch, "rcpt", still=9.0, ago=20.0),
        begun(watch, "body", still=500.0),
        begun(watch, "dot", still=500.0),
    ]
    assert cut(watch, *attempts) == [False] * 4


async def test_replies_that_come_singly_save_no_attempt() -> None:
    watch = Watch()
    dripped = begun(watch, "rcpt", still=3.0, ago=60.0)
    assert cut(watch, dripped) == [True]
