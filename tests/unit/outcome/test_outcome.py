"""test_outcome — combinations that an Outcome refuses"""

from __future__ import annotations

import dataclasses

import pytest

from shared.mail.outcome import Outcome


def test_only_delivered_and_failed_are_final() -> None:
    assert Outcome("delivered", "recipient", 250, "2.0.0", "250 2.0.0 OK").is_final
    assert Outcome("failed", "recipient", 550, "5.1.1", "550 5.1.1 no").is_final
    assert not Outcome("deferred", "destination", None, None, "no answer").is_final


def test_only_a_deferred_outcome_can_be_uncertain() -> None:
    assert Outcome("deferred", "message", None, "4.4.2", "peer hung up", uncertain=True).uncertain
    with pytest.raises(ValueError, match="uncertain"):
        Outcome("delivered", "recipient", 250, None, "OK", uncertain=True)


@pytest.mark.parametrize(("kind", "enhanced"), [("delivered", "4.0.0"), ("deferred", "5.1.1"), ("failed", "2.0.0")])
def test_the_enhanced_status_agrees_with_the_kind(kind: str, enhanced: str) -> None:
    with pytest.raises(ValueError, match=enhanced):
        Outcome(kind, "recipient", None, enhanced, "x")  # type: ignore[arg-type] # a parametrized literal


def test_an_outcome_cannot_be_changed() -> None:
    outcome = Outcome("delivered", "recipient", 250, None, "OK")
    with pytest.raises(dataclasses.FrozenInstanceError):
        outcome.kind = "failed"  # type: ignore[misc] # the very thing that must not work
