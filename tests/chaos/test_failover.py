"""test_failover — a standby takes over under load: no accepted mail is lost, or smtpd names the lost messages

Owns: the failover cells as tests.
See: tests/chaos/failover.py; docs/explanation/durability.md, "When a standby takes over".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos import failover
from tests.chaos.cells import SOON

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
async def test_a_synchronous_standby_takes_over_and_nothing_is_lost(tmp_path: Path) -> None:
    outcome = await failover.to_synchronous(tmp_path)
    assert (outcome.figures.lost, outcome.figures.altered) == (0, 0), outcome
    assert outcome.figures.duplicated <= outcome.bound, outcome
    assert outcome.seconds <= SOON, outcome
    assert outcome.reported == frozenset()


@pytest.mark.slow
async def test_a_lagging_standby_takes_over_and_smtpd_names_every_message_that_is_lost(tmp_path: Path) -> None:
    outcome = await failover.to_lagging(tmp_path)
    assert outcome.figures.lost > 0, outcome
    assert outcome.reported == outcome.missing
    assert outcome.seconds <= SOON, outcome


@pytest.mark.slow
async def test_a_worker_that_survives_a_lagging_failover_touches_no_other_mail(tmp_path: Path) -> None:
    outcome = await failover.past_survivors(tmp_path)
    assert outcome.reported == outcome.missing
    assert (outcome.figures.duplicated, outcome.figures.altered) == (0, 0), outcome
    assert outcome.seconds <= SOON, outcome


@pytest.mark.slow
async def test_patroni_promotes_and_nothing_is_lost(tmp_path: Path) -> None:
    outcome = await failover.by_patroni(tmp_path)
    assert (outcome.figures.lost, outcome.figures.altered) == (0, 0), outcome
    assert outcome.figures.duplicated <= outcome.bound, outcome
    assert outcome.seconds <= SOON, outcome
    assert outcome.reported == frozenset()
