"""test_rules_config — valid rules about replies, and the errors for others"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from shared.config.queued.load import load_queued
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.queued.rules import ReplyRule


def load(tmp_path: Path, text: str) -> list[ReplyRule]:
    """The rules of a queued.yaml with these lines."""
    file = tmp_path / "queued.yaml"
    file.write_text(f"rules:\n{text}", encoding="utf-8")
    return load_queued(file, {}).rules


def test_a_rule_with_every_key_is_read(tmp_path: Path) -> None:
    [rule] = load(
        tmp_path,
        """  - id: everything
    if:
      reply: ["421 *", "/rate limit/"]
      code: ["421", "45x", "5xx"]
      enhanced: [4.7.28, "5.7.*"]
      phase: [greeting, dot]
      outcome: [deferred]
      destination: [example.com, .example.com]
      transport: [default]
      site: ["*.example.com"]
      tries: ">=2"
    defer: 2h
    suspend: 1h
    suspended: site
    concurrency: lower
    reason: too fast
""",
    )
    assert rule.defer == timedelta(hours=2)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("  - id: a\n    if: {code: ['421']}\n", "rules[0]: the rule does nothing; allowed: defer, bounce, hold"),
        ("  - id: a\n    if: {}\n    defer: 1h\n", "rules[0].if: asks nothing; allowed: at least one condition"),
        (
            "  - id: a\n    if: {code: ['421']}\n    defer: 1h\n    bounce: sorry\n",
            "rules[0].bounce: conflicts with defer; allowed: only one of defer, bounce, hold",
        ),
        (
            "  - id: a\n    if: {code: ['421']}\n    defer: 1h\n    hold: q\n",
            "rules[0].hold: conflicts with defer; allowed: only one of defer, bounce, hold",
        ),
        ("  - id: a\n    if: {reply: ['/(/']}\n    defer: 1h\n", "is not a regular expression"),
        ("  - id: a\n    if: {code: ['921']}\n    defer: 1h\n", "allowed: a reply code in quotes"),
        ("  - id: a\n    if: {enhanced: ['4.7']}\n    defer: 1h\n", "allowed: an enhanced code such as 4.7.28"),
        ("  - id: a\n    if: {phase: [ehlo]}\n    defer: 1h\n", "rules[0].if.phase[0]"),
        ("  - id: a\n    if: {code: ['421']}\n    defer: soon\n", "rules[0].defer"),
        ("  - id: a\n    defer: 1h\n", "rules[0].if: is missing"),
        (
            "  - id: a\n    if: {code: ['421']}\n    defer: 1h\n  - id: a\n    if: {code: ['450']}\n    defer: 1h\n",
            "is already taken by [0]",
        ),
    ],
)
def test_an_invalid_rule_is_refused(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, text)
    assert error in str(refused.value)
