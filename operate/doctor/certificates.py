"""certificates — verdicts on the certificates smtpd serves

Owns: one look at each certificate of smtpd.yaml: whether it can be read, and how long it lasts.
Guarantees: reads certificates, never a private key: doctor may run as a user that must not.
See: smtpd/tls.py, which warns of the same at start and reload.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, span
from smtpd.tls import examine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from pathlib import Path

    from shared.config.smtpd.settings import Server

_CHECK: Final = "tls.certificates"
_RENEW: Final = "renew it, then reload smtpd (SIGHUP)"


def certificates(servers: Sequence[Server], now: datetime) -> list[Finding]:
    """One finding for each certificate that is trouble, or one that says how long all of them last."""
    files = {
        file: server.tls.expirywarning
        for server in servers
        if server.tls is not None
        for file in (server.tls.certificate, *(each.certificate for each in server.tls.certificates))
    }
    if not files:
        return [Finding(_CHECK, Severity.OK, "no server of smtpd.yaml has one")]
    found = [_look(file, warning, now) for file, warning in files.items()]
    return [each for each in found if each.verdict] or [
        Finding(_CHECK, Severity.OK, f"{len(found)} read, all of them last")
    ]


def _look(file: Path, warning: timedelta, now: datetime) -> Finding:
    try:
        served = examine(file)
    except (OSError, ValueError) as error:
        return Finding(_CHECK, Severity.ALARM, f"{file} cannot be read: {error}", "name a certificate in PEM")
    left = served.ends - now
    if left.total_seconds() <= 0:
        return Finding(_CHECK, Severity.ALARM, f"{file} ended {_day(served.ends)}: clients refuse it", _RENEW)
    if served.begins > now:
        return Finding(_CHECK, Severity.ALARM, f"{file} begins {_day(served.begins)}: clients refuse it", _RENEW)
    if left < warning:
        return Finding(_CHECK, Severity.WARN, f"{file} ends {_day(served.ends)}, in {span(left)}", _RENEW)
    return Finding(_CHECK, Severity.OK, f"{file} lasts until {_day(served.ends)}")


def _day(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d")
