"""test_signing_config — valid and invalid settings of `signing`, and the example in its comments works"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shared.config.queued.load import load_queued
from shared.config.queued.signing import SigningRule
from shared.errors import ConfigError

SHIPPED = Path(__file__).parents[3] / "config" / "queued.yaml"
KEY = "{selector: s1, file: a.pem%s}"
RULE = "{id: a, senderdomain: [%s], keys: [%s]}"


def load(folder: Path, rules: str) -> list[SigningRule]:
    (folder / "queued.yaml").write_text(f"signing: {{rules: [{rules}]}}")
    return load_queued(folder / "queued.yaml", {}).signing.rules


def test_nothing_is_signed_by_default(tmp_path: Path) -> None:
    assert load(tmp_path, "") == []


def test_domains_are_in_lower_case_and_times_in_utc(tmp_path: Path) -> None:
    key = KEY % ", notbefore: 2026-01-01T01:00:00+01:00, notafter: '2027-01-01T00:00:00Z'"
    [rule] = load(tmp_path, RULE % ("Example.COM, '*.Example.com', '*'", key))
    assert rule.senderdomain == ["example.com", "*.example.com", "*"]
    assert rule.keys[0].notbefore == datetime(2026, 1, 1, tzinfo=UTC)
    assert rule.keys[0].notafter == datetime(2027, 1, 1, tzinfo=UTC)
    assert rule.domain is None


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (RULE % ("", KEY % ""), "senderdomain"),
        (RULE % ("example.com", ""), "keys"),
        (RULE % ("☃.example", KEY % ""), "as A-labels"),
        (RULE % ("x." * 33 + "example", KEY % ""), "at most 64 characters"),
        (RULE % ("example.com", KEY % ", notbefore: soon"), "is not a time"),
        (RULE % ("example.com", KEY % ", notafter: '2027-01-01T00:00:00'"), "says no zone"),
        (RULE % ("example.com", KEY % ", notafter: 7"), "says no zone"),
        (
            RULE % ("example.com", KEY % ", notbefore: '2027-01-01T00:00:00Z', notafter: '2026-01-01T00:00:00Z'"),
            "the key ends before it begins",
        ),
        (RULE % ("example.com", f"{KEY % ''}, {KEY % ''}"), "keys[1].selector: "),
        (RULE % ("example.com", "{selector: a b, file: x}"), "keys[0].selector: "),
    ],
)
def test_mistakes_are_reported(rule: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, rule)
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_the_sealing_example_in_comments_is_valid(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    example = re.search(r"(?m)^  # arc:\n(?:  #   .*\n)+", text)
    assert example is not None
    bare = re.sub(r"(?m)^  # ", "  ", example[0])
    (tmp_path / "queued.yaml").write_text(f"signing:\n{bare}")
    arc = load_queued(tmp_path / "queued.yaml", {}).signing.arc
    assert arc is not None
    assert arc.model_fields_set == set(type(arc).model_fields)


def test_the_signing_example_in_comments_is_valid(tmp_path: Path) -> None:
    text = SHIPPED.read_text(encoding="utf-8")
    example = re.search(r"(?<=  rules: \[\]\n)(?:  #.*\n)+(?=\n# Delivery status notifications)", text)
    assert example is not None
    bare = re.sub(r"(?m)^  # ", "  ", example[0])
    (tmp_path / "queued.yaml").write_text(f"signing:\n  rules:\n{bare}")
    [rule] = load_queued(tmp_path / "queued.yaml", {}).signing.rules
    assert rule.model_fields_set == set(SigningRule.model_fields)
    assert rule.keys[0].model_fields_set == set(type(rule.keys[0]).model_fields)
