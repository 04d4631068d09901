"""test_doctor_windows — doctor reports windows that stay closed for longer than mail lives"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from operate.doctor.checks import Severity
from operate.doctor.windows import windows
from queued.pacing.windows import longest_closed
from shared.config.queued.transport import Transport

SUMMER = datetime(2026, 7, 1, tzinfo=UTC)
WEEKDAYS = {"days": ["mon", "tue", "wed", "thu", "fri"], "from": "08:00", "to": "18:00"}


def transport(*windows: dict[str, Any], **retry: str) -> Transport:
    return Transport.model_validate({"id": "office", "windows": list(windows), "retry": retry})


@pytest.mark.parametrize(
    ("given", "hours"),
    [
        ([], 0),
        ([{}], 0),
        ([{"from": "06:00", "to": "06:00"}], 0),
        ([WEEKDAYS], 62),
        ([WEEKDAYS, {"days": ["sat"], "from": "22:00", "to": "02:00"}], 30),
        ([{"days": ["sun"], "from": "23:00", "to": "24:00"}], 167),
        # By UTC these two follow each other: the evening of one zone is the morning of the other.
        ([{"from": "00:00", "to": "12:00"}, {"from": "14:00", "to": "02:00", "zone": "Europe/Berlin"}], 0),
    ],
)
def test_the_longest_time_without_a_window(given: list[dict[str, Any]], hours: int) -> None:
    assert longest_closed(transport(*given).windows, SUMMER) == timedelta(hours=hours)


def test_a_window_closed_for_longer_than_mail_lives_is_a_warning() -> None:
    finding = windows([transport(WEEKDAYS, age="2d", nullage="1d"), transport()], SUMMER)
    assert finding.verdict is Severity.WARN
    assert "office is closed for " in finding.found
    assert "retry.age" in finding.found
    assert "retry.nullage" in finding.found


@pytest.mark.parametrize("each", [transport(WEEKDAYS), transport(age="1m"), transport({}, age="1m")])
def test_a_short_closed_window_gives_no_warning(each: Transport) -> None:
    assert windows([each], SUMMER).verdict is Severity.OK
