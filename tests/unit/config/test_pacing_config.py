"""test_pacing_config — valid settings of `pacing` and `windows` in queued.yaml, and the errors for others

Owns: proofs about shared/config/queued/pacing.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from queued.pacing.match import Fields
from shared.config.queued.load import load_queued
from shared.config.queued.pacing import FIELDS, FieldName, Match, Policy, Rate, Window
from shared.errors import ConfigError

SHIPPED = Path(__file__).resolve().parents[3] / "config" / "queued.yaml"


def test_a_rate_is_a_number_in_a_period() -> None:
    assert Policy.model_validate({"id": "p", "rate": "90/min"}).rate == Rate(90, 60)
    assert Rate(90, 60).per_second == 1.5
    assert str(Rate(90, 60)) == "90/min"


def test_the_default_burst_is_one_seconds_rate() -> None:
    assert [Policy.model_validate({"id": "p", "rate": r}).most for r in ("10/sec", "90/min", "1/day")] == [10, 1, 1]
    assert Policy.model_validate({"id": "p", "rate": "10/sec", "burst": 3}).most == 3


def test_a_match_lowercases_domains_only() -> None:
    match = Match.model_validate({"destination": [".Example.COM"], "tenant": ["Acme"]})
    assert match.destination == [".example.com"]
    assert match.tenant == ["Acme"]


def test_destinations_and_senders_are_domains_or_address_literals() -> None:
    taken = ["example.com", ".example.com", "[192.0.2.1]", "[IPv6:2001:DB8:0::1]", "_x.example", "faß.de"]
    for field in ("destination", "sender"):
        assert getattr(Match.model_validate({field: taken}), field) == [
            *("example.com", ".example.com", "[192.0.2.1]", "[ipv6:2001:db8::1]", "_x.example", "xn--fa-hia.de")
        ]
        for refused in ("", "x@example.com", "*.example.com", "example.com.", "two words", "[", "a..b", "-a.example"):
            with pytest.raises(ValidationError, match="is not usable here; allowed: a domain"):
                Match.model_validate({field: [refused]})


def test_every_field_of_a_policy_is_a_field_of_mail_and_of_a_match() -> None:
    assert FIELDS == Fields._fields == get_args(FieldName) == tuple(Match.model_fields)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ({"id": "p", "rate": "0/sec"}, '"0/sec" is not a rate; allowed: N/sec, N/min, N/hour or N/day'),
        ({"id": "p", "rate": 10}, "10 is not a rate; allowed: N/sec, N/min, N/hour or N/day (in quotes)"),
        ({"id": "p", "concurrency": 0}, "0 is not a usable number; allowed: a whole number from 1 to 1000000"),
        ({"id": "p"}, 'policy "p" limits nothing; allowed: concurrency, rate, connectinterval'),
        (
            {"id": "p", "concurrency": 1, "burst": 5},
            "requires rate; allowed: both, or neither",
        ),
        (
            {"id": "p", "rate": "1/sec", "connectinterval": "1s", "shared": True},
            "is counted by each worker for itself; allowed: a policy of its own without shared",
        ),
    ],
)
def test_an_invalid_policy_is_refused_with_the_allowed_values(policy: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Policy.model_validate(policy)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ({"from": "8:00"}, '"8:00" is not a time of day; allowed: 00:00 to 24:00, in quotes'),
        ({"to": "24:01"}, '"24:01" is not a time of day; allowed: 00:00 to 24:00, in quotes'),
        ({"from": 480}, "480 is not a time of day; allowed: 00:00 to 24:00, in quotes"),
        ({"zone": "Europe/Nowhere"}, '"Europe/Nowhere" is not a time zone'),
    ],
)
def test_an_invalid_window_is_refused_with_the_allowed_values(window: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Window.model_validate(window)
    assert said in str(refused.value)


def test_a_mistake_is_reported_with_file_and_key(tmp_path: Path) -> None:
    file = tmp_path / "queued.yaml"
    file.write_text("pacing: {policies: [{id: a, rate: 5/sec}, {id: a, rate: 5/week}]}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_queued(file, {})
    assert 'pacing.policies[1].rate: "5/week" is not a rate' in str(refused.value)


def test_the_examples_in_comments_are_valid(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    text = re.sub(r"^( *)(policies|suspends|windows): \[\]\n((?:\1#   .*\n)+)", _bare, text, flags=re.MULTILINE)
    (tmp_path / "queued.yaml").write_text(text, encoding="utf-8")
    config = load_queued(tmp_path / "queued.yaml", {})
    [policy], [suspend] = config.pacing.policies, config.pacing.suspends
    assert policy.model_fields_set == set(Policy.model_fields)
    assert policy.match.model_fields_set == set(Match.model_fields)
    assert suspend.match.destination == ["example.net"]
    assert config.transports[0].windows[0].model_fields_set == set(Window.model_fields)


def _bare(found: re.Match[str]) -> str:
    """The key with its example in place of the empty list."""
    return f"{found[1]}{found[2]}:\n" + re.sub(rf"^{found[1]}#", f"{found[1]} ", found[3], flags=re.MULTILINE)
