"""test_bounces_config — mistakes about notifications and suppressions are reported with the allowed values"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bounces: {transport: slow}", 'bounces.transport: "slow" is not a transport; allowed: default'),
        ("bounces: {address: nobody}", 'bounces.address: "nobody" is not an address'),
        (
            "bounces: {texts: {failed: 'Dear {name}'}}",
            "bounces.texts.failed: {name} means nothing here; allowed: {host",
        ),
        ("bounces: {rate: {persender: 0}}", "bounces.rate.persender: 0 is not a usable number"),
        ("suppression: {addresses: [a b@c.example]}", 'suppression.addresses[0]: "a b@c.example": bad local-part'),
        ("suppression: {hard: ['550']}", 'suppression.hard[0]: "550" is not usable here; allowed: an enhanced status'),
        ("suppression: {returnpath: {domain: b.example}}", "suppression.returnpath: a domain without a secret"),
    ],
)
def test_an_invalid_setting_is_reported(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "queued.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_queued(file, {})
    assert message in str(error.value)


def test_addresses_for_reports_have_one_spelling(tmp_path: Path) -> None:
    file = tmp_path / "smtpd.yaml"
    file.write_text("suppression: {accept: [FBL@Example.com, MÜller.example]}")
    assert load_smtpd(file, {}).suppression.accept == ["fbl@example.com", "xn--mller-kva.example"]


def test_the_default_transport_of_bounces_may_be_missing(tmp_path: Path) -> None:
    file = tmp_path / "queued.yaml"
    file.write_text("transports: [{id: mx}]")
    assert load_queued(file, {}).bounces.enabled
