"""test_quarantine_config — valid settings of quarantines in smtpd.yaml, and their reviewers

Owns: cases for shared.config.smtpd.quarantine and the rule in operate.quarantine.access.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from operate.quarantine.access import Access
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.quarantine import Quarantine, all_quarantines
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def problem(tmp_path: Path, yaml: str) -> str:
    """The error for this list of quarantines."""
    file = tmp_path / "smtpd.yaml"
    file.write_text(f"quarantines: {yaml}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as refused:
        load_smtpd(file, {})
    return str(refused.value)


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("[{}]", "quarantines[0].id: is missing"),
        ("[{id: a b}]", 'quarantines[0].id: "a b" is not usable here; allowed: 1 to 64 of'),
        ("[{id: a}, {id: a}]", 'quarantines[1].id: "a" is already taken by [0]'),
        ("[{id: a, retention: soon}]", 'quarantines[0].retention: "soon" is not a duration'),
        ("[{id: a, retention: 0s}]", "quarantines[0].retention: "),
        ("[{id: a, reviewer: bob}]", "quarantines[0].reviewer: "),
        ("[{id: a, reviewers: ['']}]", 'quarantines[0].reviewers[0]: "" is not usable here'),
        ("[{id: a, notice: {to: [bob]}}]", 'quarantines[0].notice.to[0]: "bob" is not an address; allowed: an address'),
        ("[{id: a, notice: {to: [b@☃.example]}}]", "is not an address"),
        ("[{id: a, notice: {sender: 7}}]", "quarantines[0].notice.sender: 7 is not an address"),
    ],
)
def test_mistakes_are_reported_with_key_value_and_allowed_values(tmp_path: Path, yaml: str, said: str) -> None:
    error = problem(tmp_path, yaml)
    assert error.startswith("smtpd.yaml:1: ") or "smtpd.yaml:1: " in error
    assert said in error


def test_the_two_built_in_quarantines_can_be_redefined() -> None:
    assert list(all_quarantines([])) == ["poison", "body"]
    mine = Quarantine(id="poison", retention=timedelta(days=3))
    assert all_quarantines([mine]) | {} == {**all_quarantines([]), "poison": mine}


@pytest.mark.parametrize(
    ("roles", "operator", "quarantine", "may"),
    [
        ({"alice"}, False, "legal", ""),
        ({"alice", "lawyers"}, False, "legal", "may"),
        ({"alice"}, True, "legal", "may"),
        ({"alice"}, False, "open", "may"),
        ({"alice"}, False, "undeclared", "may"),
        ({"alice"}, False, None, "may"),
    ],
)
def test_only_reviewers_and_operators_may_decide(
    roles: set[str], operator: Any, quarantine: str | None, may: str
) -> None:
    known = all_quarantines([Quarantine(id="legal", reviewers=["lawyers"]), Quarantine(id="open")])
    access = Access("alice", frozenset(roles), operator, unspooling="", quarantines=known)
    assert access.may(quarantine) == bool(may)
    if not may:
        assert access.refusal(quarantine) == '"alice" is not a reviewer of "legal"; its reviewers are lawyers'
