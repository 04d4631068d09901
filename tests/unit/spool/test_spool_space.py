"""test_spool_space — when free space is too low, and when it suffices again

Owns: the decision of shared/spool/space.py as a function of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.errors import NoSpace
from shared.spool.space import Headroom, Volume

if TYPE_CHECKING:
    from tests.fixtures.heard import Heard

LEAST = 1000


def measured(room: Headroom, free: int) -> None:
    room.measured(Volume("/pg", free, 10_000))


def test_mail_is_accepted_before_the_first_measurement() -> None:
    assert Headroom(LEAST).trouble(1 << 40) is None


@pytest.mark.parametrize(
    ("free", "size", "refused"), [(1000, 0, False), (999, 0, True), (1500, 500, False), (1500, 501, True), (0, 0, True)]
)
def test_mail_that_would_leave_too_little_space_is_refused(free: int, size: int, *, refused: bool) -> None:
    room = Headroom(LEAST)
    measured(room, free)
    assert isinstance(room.trouble(size), NoSpace) is refused


def test_refusal_ends_at_a_quarter_more_space_and_each_change_is_logged_once(heard: Heard) -> None:
    room = Headroom(LEAST)
    seen = []
    for free in (2000, 999, 1000, 1249, 998, 1250, 1001, 1000, 999):
        measured(room, free)
        seen.append(room.trouble() is not None)
    assert seen == [False, True, True, True, True, False, False, False, True]
    assert len(heard.all("spool.space_low")) == 2
    assert [said["free"] for said in heard.all("spool.space_restored")] == [1250]
