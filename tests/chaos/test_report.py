"""test_report — a run reports broken promises, cells that could not run, and its limits

Owns: the exit status; the difference between a missing library and a broken promise; the page's row.
See: tests/chaos/report.py; tests/chaos/__main__.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.chaos import __main__ as chaos
from tests.chaos import arena, report
from tests.chaos.accounts import Figures
from tests.chaos.cells import BY_NAME, POLL, ROUND
from tests.chaos.run_cell import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.servers.killable import Killable

FIGURES = Figures(300, 300, 0, 7, 0, 0, 0, 0)


def outcome(name: str = "worker-gone", *, clears: float = 4.4, seed: int = 1) -> Outcome:
    return Outcome(
        BY_NAME[name],
        seed,
        FIGURES,
        bound=7,
        unexplained=0,
        uncertain=7,
        left=0,
        accepts=0.1,
        delivers=0.2,
        clears=clears,
        took=9.0,
        faults=(),
        more=(),
    )


def test_mail_of_a_killed_worker_must_arrive_within_lease_poll_and_round() -> None:
    limit = BY_NAME["worker-gone"].lease + POLL + ROUND
    assert outcome(clears=limit).broken() == []
    [what] = outcome(clears=limit + 0.1).broken()
    assert what == "recovered after 5.60 s, limit 5.5 s"


def test_an_unexplained_duplicate_breaks_the_promise_within_the_bound_too() -> None:
    [what] = replace(outcome(), unexplained=1).broken()
    assert what == "1 duplicates of what was not in flight"


def test_the_printed_limit_is_the_asserted_limit() -> None:
    for name in ("worker-gone", "postmaster", "storm"):
        assert f"({BY_NAME[name].limit:g} s)" in report.rows([outcome(name)])[name]


def test_several_seeds_print_their_range() -> None:
    seeds = [outcome(clears=clears, seed=seed) for seed, clears in enumerate((4.0, 4.4, 3.9))]
    assert "| 3.9 / 4.0 / 4.4 s (5.5 s) |" in report.rows(seeds)["worker-gone"]
    assert "| 4.0 s (5.5 s) |" in report.rows(seeds[:1])["worker-gone"]


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (report.Run([outcome()]), 0),
        (report.Run([outcome()], unrun=["clock-back"]), 69),
        (report.Run([outcome(clears=9.0)], unrun=["clock-back"]), 1),
        (report.Run(stuck=["worker"]), 1),
    ],
)
def test_missing_tools_and_broken_promises_have_their_exit_status(run: report.Run, status: int) -> None:
    assert run.status == status


@pytest.mark.slow
async def test_a_missing_library_is_reported_and_breaks_no_promise(
    chaos_server: Killable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "find_library", lambda _: None)
    said: list[str] = []
    run = await chaos.run_all([BY_NAME["clock-back"]], range(1, 2), chaos_server, tmp_path, said.append)
    assert (run.outcomes, run.stuck, run.broken, run.status) == ([], [], 0, 69)
    [line] = said
    assert line.strip().startswith("clock-back, seed 1: could not run: libfaketime is missing; run `make peers`")
