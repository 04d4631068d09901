"""test_tls — doctor reports an expiring certificate before clients notice"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor.certificates import certificates
from operate.doctor.checks import Severity
from shared.config.smtpd.settings import Server

if TYPE_CHECKING:
    from tests.fixtures.peers.certificates import Authority

NOW = datetime.now(UTC)


def server(**tls: Any) -> Server:
    return Server.model_validate({"tls": tls})


@pytest.mark.parametrize(
    ("begins", "ends", "verdict", "words"),
    [
        (-9, 60, Severity.OK, "1 read, all of them last"),
        (-9, 5, Severity.WARN, " ends "),
        (-9, -1, Severity.ALARM, " ended "),
        (2, 60, Severity.ALARM, " begins "),
    ],
)
def test_the_days_left_of_a_certificate_have_their_verdict(
    authority: Authority, begins: int, ends: int, verdict: Severity, words: str
) -> None:
    pair = authority.ending("mx.example", NOW + timedelta(days=ends), not_before=NOW + timedelta(days=begins))
    [finding] = certificates([server(**pair)], NOW)
    assert (finding.verdict, words in finding.found) == (verdict, True)
    assert bool(finding.remedy) is (verdict is not Severity.OK)


def test_every_certificate_of_every_server_is_checked(authority: Authority) -> None:
    fine, other = authority.issue("mx.example"), authority.issue("other.example")
    missing = {**other, "certificate": "/nowhere.pem"}
    [finding] = certificates([server(**fine, certificates=[missing]), Server()], NOW)
    assert finding.verdict is Severity.ALARM
    assert finding.found.startswith("/nowhere.pem cannot be read")
    [finding] = certificates([Server()], NOW)
    assert finding.verdict is Severity.OK
