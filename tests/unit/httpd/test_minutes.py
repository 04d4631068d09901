"""test_minutes — the bars of the last hour

Owns: proofs about httpd/console/minutes.py.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from httpd.console.minutes import HEIGHT, MINUTES, OUTCOMES, WIDTH, Part, chart

NOW = datetime(2026, 11, 26, 12, 0, 30, tzinfo=UTC)


def minute(ago: int, delivered: int = 0, deferred: int = 0, failed: int = 0, expired: int = 0) -> SimpleNamespace:
    """The figures of a minute."""
    figures = dict(zip(OUTCOMES, (delivered, deferred, failed, expired), strict=True))
    return SimpleNamespace(minute=NOW.replace(second=0) - timedelta(minutes=ago), **figures)


def test_no_figures_are_no_chart() -> None:
    assert chart([], NOW) is None
    assert chart([minute(MINUTES)], NOW) is None


def test_outcomes_stand_on_each_other_and_the_tallest_bar_fills_the_height() -> None:
    found = chart([minute(10, delivered=1), minute(0, delivered=2, failed=2)], NOW)
    assert found is not None
    assert found.parts == [
        Part("delivered", WIDTH * 49, HEIGHT * 0.75, HEIGHT * 0.25),
        Part("delivered", WIDTH * 59, HEIGHT * 0.5, HEIGHT * 0.5),
        Part("failed", WIDTH * 59, 0, HEIGHT * 0.5),
    ]
    assert (found.total, found.most) == (dict(zip(OUTCOMES, (3, 0, 2, 0), strict=True)), 4)
    assert found.newest == NOW.replace(second=0)


@given(st.dictionaries(st.integers(-3, 70), st.tuples(*[st.integers(0, 10**9)] * 4)))
def test_every_bar_is_within_the_picture(counted: dict[int, tuple[int, int, int, int]]) -> None:
    found = chart([minute(ago, *figures) for ago, figures in sorted(counted.items(), reverse=True)], NOW)
    shown = [figures for ago, figures in counted.items() if 0 <= ago < MINUTES]
    assert (found is None) == (not any(map(any, shown)))
    if found is not None:
        assert list(found.total.values()) == [sum(each) for each in zip(*shown, strict=True)]
        for part in found.parts:
            assert 0 <= part.x <= WIDTH * (MINUTES - 1)
            assert part.y >= -0.01
            assert part.y + part.height <= HEIGHT + 0.02
            assert part.outcome in OUTCOMES
