"""test_cron — occurrences follow crontab(5), through every change of the clock

Owns: proofs about shared/cron.py.
See: cron(8) of Debian, "Notes", for changes of the clock.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from shared import cron

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def occurrences(expression: str, timezone: str, after: str, count: int) -> list[str]:
    found, last = [], at(after)
    for _ in range(count):
        last = cron.following(expression, timezone, last)
        found.append(last.strftime("%Y-%m-%dT%H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "timezone", "after", "expected"),
    [
        ("0 9 * * mon", "UTC", "2026-11-21T00:00", ["2026-11-23T09:00", "2026-11-30T09:00"]),
        ("0 9 * * MON-FRI", "UTC", "2026-11-20T09:00", ["2026-11-23T09:00"]),
        ("*/15 * * * *", "UTC", "2026-11-21T10:14", ["2026-11-21T10:15", "2026-11-21T10:30"]),
        ("0 0 1 1 *", "UTC", "2026-11-21T00:00", ["2027-01-01T00:00"]),
        ("0 0 29 2 *", "UTC", "2026-11-21T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
        ("0 9 * * 7", "UTC", "2026-11-21T00:00", ["2026-11-22T09:00"]),
        # Day of the month or day of the week: either is enough when both are given.
        ("0 0 13 * fri", "UTC", "2026-11-09T00:00", ["2026-11-13T00:00", "2026-11-20T00:00"]),
        ("0 9 * * *", NEW_YORK, "2026-11-21T00:00", ["2026-11-21T14:00"]),
    ],
)
def test_an_ordinary_expression_gives_its_occurrences(
    expression: str, timezone: str, after: str, expected: list[str]
) -> None:
    assert occurrences(expression, timezone, after, len(expected)) == expected


def test_a_daily_time_keeps_its_local_hour_through_clock_changes() -> None:
    assert occurrences("0 9 * * *", BERLIN, "2026-03-27T12:00", 3) == [
        "2026-03-28T08:00",
        "2026-03-29T07:00",
        "2026-03-30T07:00",
    ]
    assert occurrences("0 9 * * *", BERLIN, "2026-10-24T00:00", 2) == ["2026-10-24T07:00", "2026-10-25T08:00"]


def test_a_skipped_time_occurs_right_after_the_change() -> None:
    # On 29 March 2026 at 02:00 (01:00 UTC) the clock is put to 03:00.
    assert occurrences("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["2026-03-29T01:00", "2026-03-30T00:30"]


def test_a_repeated_time_occurs_once() -> None:
    # On 25 October 2026 at 03:00 (01:00 UTC) the clock is put back to 02:00.
    assert occurrences("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["2026-10-25T00:30", "2026-10-26T01:30"]


@pytest.mark.parametrize("day", ["2026-03-28T23:00", "2026-10-24T22:00"])
def test_intervals_within_the_hour_follow_real_time(day: str) -> None:
    last = at(day)
    for _ in range(12):
        upcoming = cron.following("*/30 * * * *", BERLIN, last)
        assert upcoming - last == timedelta(minutes=30)
        last = upcoming


def test_a_clock_change_by_half_an_hour_is_followed() -> None:
    # Lord Howe Island puts the clock forward by 30 minutes, on 4 October 2026 at 02:00 (15:30 UTC the day before).
    assert occurrences("15 2 * * *", LORD_HOWE, "2026-10-03T00:00", 2) == ["2026-10-03T15:30", "2026-10-04T15:15"]


@pytest.mark.parametrize("expression", ["0 * * * *", "30 2 * * *", "0 2-3 * * *", "*/7 1-3 * * *"])
@pytest.mark.parametrize("timezone", [BERLIN, NEW_YORK, LORD_HOWE, "UTC", "Asia/Kathmandu"])
def test_occurrences_increase_and_have_the_right_minute(expression: str, timezone: str) -> None:
    last, end = at("2026-03-01T00:00"), at("2026-04-10T00:00")
    while last < end:
        upcoming = cron.following(expression, timezone, last)
        assert upcoming > last
        assert upcoming.tzinfo is UTC
        last = upcoming


def test_an_occurrence_is_later_than_the_given_time() -> None:
    assert cron.following("0 9 * * *", "UTC", at("2026-11-21T09:00")) == at("2026-11-22T09:00")
    assert cron.following("0 9 * * *", "UTC", at("2026-11-21T08:59:59.999")) == at("2026-11-21T09:00")


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "five fields"),
        ("* * * *", "five fields"),
        ("* * * * * *", "five fields"),
        ("@daily", "five fields"),
        ("61 * * * *", "bad minute"),
        ("* 24 * * *", "bad hour"),
        ("0 0 31 2 *", "bad day-of-month"),
        ("0 9 * * xyz", "bad day-of-week"),
        ("a b c d e", "bad minute"),
        ("0 9 * *\n* x", "five fields"),
        (f"{'9' * 5000} * * * *", "exceeds the limit"),
    ],
)
def test_an_invalid_expression_is_refused_in_one_line(expression: str, says: str) -> None:
    with pytest.raises(cron.CronRefused, match=says) as refused:
        cron.following(expression, "UTC", at("2026-11-21T00:00"))
    assert "\n" not in str(refused.value)
    assert "allowed: minute hour" in str(refused.value)


@pytest.mark.parametrize("name", ["", "Mars/Olympus", "Europe", "../etc/passwd", "Europe/Berlin\n"])
def test_an_invalid_time_zone_is_refused(name: str) -> None:
    with pytest.raises(cron.CronRefused, match="is not a time zone; allowed: UTC or"):
        cron.following("0 9 * * *", name, at("2026-11-21T00:00"))


def test_an_expression_is_explained_in_words() -> None:
    assert cron.explain("0 9 * * mon") == "At 09:00 on Monday"
