"""test_source — which address an attempt may speak from: weights, families, and the days of a warm-up"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta, timezone
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queued.routing.source import allowance, draw, family, fits, until_tomorrow, usable
from shared.config.queued.source import Source


def source(address: str = "192.0.2.1", **more: Any) -> Source:
    return Source.model_validate({"address": address, **more})


def test_sources_are_drawn_in_proportion_to_their_weights() -> None:
    sources = [source("192.0.2.1", weight=3), source("192.0.2.2")]
    random = Random(1)
    first = Counter(str(draw(sources, random)[0].address) for _ in range(4000))
    assert 2850 < first["192.0.2.1"] < 3150
    assert sorted(str(s.address) for s in draw(sources, random)) == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize(
    ("host", "version", "four", "six"),
    [("198.51.100.1", 4, True, False), ("2001:db8::1", 6, False, True), ("mx.example", None, True, True)],
)
def test_a_source_fits_hosts_of_its_family_and_names(host: str, version: int | None, four: bool, six: bool) -> None:  # noqa: FBT001 - of the table
    assert family(host) == version
    assert (fits(source(), version), fits(source("2001:db8::9"), version)) == (four, six)


@pytest.mark.parametrize(
    ("day", "most"),
    [("2026-11-30", 0), ("2026-12-01", 50), ("2026-12-03", 500), ("2026-12-04", None), ("2027-12-01", None)],
)
def test_an_allowance_grows_by_the_day_and_ends(day: str, most: int | None) -> None:
    warm = source(warmup={"from": "2026-12-01", "days": [50, 100, 500]})
    assert allowance(warm, date.fromisoformat(day)) == most
    assert allowance(source(), date.fromisoformat(day)) is None


@pytest.mark.parametrize(
    ("hosts", "day", "addresses", "why"),
    [
        (["198.51.100.1", "2001:db8::1"], "2026-12-01", ["192.0.2.1", "192.0.2.2", "2001:db8::9"], None),
        (["198.51.100.1"], "2026-12-01", ["192.0.2.1", "192.0.2.2"], None),
        (["198.51.100.1"], "2026-11-30", ["192.0.2.1"], None),
        (["2001:db8::1"], "2026-11-30", [], "none today: the warm-up has not begun"),
        (["mx.example"], "2026-11-30", ["192.0.2.1"], None),
        ([], "2026-12-01", [], "none, because there is no host"),
    ],
)
def test_the_sources_usable_for_hosts_and_day_are_found(
    hosts: list[str], day: str, addresses: list[str], why: str | None
) -> None:
    warm = {"warmup": {"from": "2026-12-01", "days": [50]}}
    sources = [source(), source("192.0.2.2", **warm), source("2001:db8::9", **warm)]
    found, reason = usable(sources, hosts, date.fromisoformat(day))
    assert ([str(each.address) for each in found], reason) == (addresses, why)


def test_a_missing_source_has_its_reason() -> None:
    day = date(2026, 12, 1)
    assert usable([], ["198.51.100.1"], day) == ([], "the system chooses")
    assert usable([source()], ["2001:db8::1"], day) == ([], "none for IPv6")


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=13)), timezone(-timedelta(hours=11))])))
def test_the_wait_for_tomorrow_ends_at_midnight_utc(now: datetime) -> None:
    if now.year > 9998:
        return
    wait = until_tomorrow(now)
    assert 1.0 <= wait <= 86400.0
    assert (now.astimezone(UTC) + timedelta(seconds=wait)).date() > now.astimezone(UTC).date() or wait == 1.0
