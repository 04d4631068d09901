"""test_windows — a delivery window opens by its clock, through every change of the clock

Owns: proofs about queued/pacing/windows.py, among them the two days of the year on which a clock is changed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import assume, given
from hypothesis import strategies as st

from queued.pacing.windows import is_open, next_open
from shared.config.queued.pacing import DAYS, Window

# Berlin: forward on 29 March 2026 at 01:00 UTC, back on 25 October at 01:00 UTC. Lord Howe goes by half an hour.
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "America/Santiago")
FORWARD, BACK = datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)

times = st.integers(0, 24 * 60).map(lambda m: f"{m // 60:02}:{m % 60:02}")
days = st.lists(st.sampled_from(DAYS), min_size=1, max_size=7, unique=True)
windows = st.builds(
    lambda days, begin, end, zone: Window.model_validate({"days": days, "from": begin, "to": end, "zone": zone}),
    days,
    times,
    times,
    st.sampled_from(ZONES),
)
instants = st.one_of(
    st.builds(
        lambda base, seconds: base + timedelta(seconds=seconds),
        st.sampled_from([FORWARD, BACK, datetime(2026, 4, 4, 15, tzinfo=UTC), datetime(2026, 10, 3, 15, tzinfo=UTC)]),
        st.integers(-2 * 86_400, 2 * 86_400),
    ),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31), timezones=st.just(UTC)),  # noqa: DTZ001 - given UTC
)


def berlin(begin: str, end: str, *on: str) -> Window:
    """A window by the clock of Berlin."""
    return Window.model_validate({"days": list(on) or list(DAYS), "from": begin, "to": end, "zone": "Europe/Berlin"})


@given(windows, instants)
def test_the_next_opening_is_open_and_within_eight_days(window: Window, now: datetime) -> None:
    opens = next_open([window], now)
    assert opens is not None
    assert is_open(window, opens)
    assert now <= opens <= now + timedelta(days=8)


@given(windows, instants, st.data())
def test_the_window_is_closed_before_the_next_opening(window: Window, now: datetime, data: st.DataObject) -> None:
    opens = next_open([window], now)
    assert opens is not None
    assume(opens > now)
    between = data.draw(st.floats(0, (opens - now).total_seconds(), exclude_max=True))
    earlier = now + timedelta(seconds=between)
    assume(earlier < opens)
    assert not is_open(window, earlier)


@given(st.lists(windows, min_size=1, max_size=4), instants)
def test_the_earliest_of_several_windows_counts(several: list[Window], now: datetime) -> None:
    assert next_open(several, now) == min(next_open([each], now) or now for each in several)


def test_without_windows_there_is_no_opening() -> None:
    assert next_open([], FORWARD) is None


def test_a_window_in_a_skipped_hour_opens_right_after_it() -> None:
    window = berlin("02:30", "04:00")
    assert next_open([window], FORWARD - timedelta(hours=1)) == FORWARD  # 02:30 is not there, 03:00 comes instead


def test_a_window_inside_a_skipped_hour_opens_the_next_day() -> None:
    window = berlin("02:10", "02:50")
    assert next_open([window], FORWARD - timedelta(hours=1)) == datetime(2026, 3, 30, 0, 10, tzinfo=UTC)


def test_a_window_in_a_repeated_hour_opens_twice() -> None:
    window = berlin("02:00", "02:30")
    assert next_open([window], BACK - timedelta(hours=1)) == BACK - timedelta(hours=1)
    assert next_open([window], BACK - timedelta(minutes=20)) == BACK


def test_a_clock_set_back_into_a_window_opens_it_again() -> None:
    window = berlin("01:30", "02:30")
    assert next_open([window], BACK - timedelta(minutes=15)) == BACK  # from 02:45 to 02:00


def test_a_window_over_midnight_belongs_to_the_day_it_begins() -> None:
    window = berlin("22:00", "06:00", "fri")
    assert is_open(window, datetime(2026, 11, 21, 4, tzinfo=UTC))  # Saturday 05:00
    assert not is_open(window, datetime(2026, 11, 22, 4, tzinfo=UTC))  # Sunday 05:00


def test_a_window_with_equal_times_lasts_a_whole_day() -> None:
    window = berlin("12:00", "12:00", "mon")
    assert is_open(window, datetime(2026, 11, 24, 10, 59, tzinfo=UTC))
    assert not is_open(window, datetime(2026, 11, 24, 11, tzinfo=UTC))
