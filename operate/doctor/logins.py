"""logins — verdicts on our logins to next hops

Owns: whether the secrets that queued.yaml names can be read, and whether mail waits because a login was refused.
Guarantees: no secret is shown, and no host or token server is contacted: operate/doctor/reach.py does that.
See: queued/smtp/auth.py; docs/how-to/deliver/log-in-to-a-relay.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from operate.doctor.checks import Finding, Severity, listed
from queued.smtp.auth import logins
from shared.errors import ConfigError
from shared.how_many import how_many

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from shared.config.queued.transport import Transport
    from shared.postgres.database import Row

_SECRETS: Final = "login.secrets"
_REFUSED: Final = "login.refused"
_TRANSPORT: Final = "transport "
_LONGEST: Final = 300  # characters of a host's words


def secrets(transports: Iterable[Transport]) -> list[Finding]:
    """A finding for each transport whose secrets cannot be read, or one that says how many can."""
    found: list[Finding] = []
    names: list[str] = []
    for transport in transports:
        try:
            if logins(transport):
                names.append(transport.id)
        except ConfigError as error:
            remedy = "correct the file, its owner or mode; if only doctor may not read it, run doctor as queued's user"
            found.append(Finding(_SECRETS, Severity.WARN, str(error), remedy))
    if found:
        return found
    return [Finding(_SECRETS, Severity.OK, f"read: {listed(names)}" if names else "no transport logs in")]


def refused_by(findings: Iterable[Finding]) -> frozenset[str]:
    """The transports whose login is refused."""
    found = [finding for finding in findings if finding.check == _REFUSED and finding.verdict]
    return frozenset(finding.found.removeprefix(_TRANSPORT).partition(":")[0] for finding in found)


def refused(rows: Sequence[Row]) -> list[Finding]:
    """A finding for each transport whose mail waits for a login; `rows` as query doctor_logins has them."""
    if not rows:
        return [Finding(_REFUSED, Severity.OK, "no mail waits for a login")]
    remedy = "correct connection.auth of the transport or the account, then reload queued; mail waits for 14 days"
    return [
        Finding(
            _REFUSED,
            Severity.ALARM,
            f"{_TRANSPORT}{row.transport}: {how_many(row.recipients, 'recipient waits', 'recipients wait')}: "
            f"{row.error[:_LONGEST]}",
            remedy,
        )
        for row in rows
    ]
