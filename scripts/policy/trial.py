"""trial — tries an envelope on the policy, phase by phase, without sending it

Owns: taking an envelope through the phases of smtpd's policy, with the reasons of each rule.
Guarantees: nothing is written or counted: rates are never over here, and rspamd is asked only if the caller says so.
    Relay permission and a user's own senders are part of the answer, since they come before rules.
Raises: ConfigError.
See: smtpd.policy.session, which makes the decisions, here as in smtpd.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from smtpd import replies
from smtpd.envelope.client import Client
from smtpd.message.sender_check import originator_fault
from smtpd.policy.compile import load_policy
from smtpd.policy.content_check import ContentChecker
from smtpd.policy.headers import Extent
from smtpd.policy.recipient import may_relay
from smtpd.policy.session import PolicySession, Sources
from smtpd.session.phases import NOT_OWN
from smtpd.tls import TlsFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Literal

    from shared.config.smtpd.content import DataPhase
    from shared.config.smtpd.settings import SmtpdConfig
    from shared.mail.message import Address, Recipient
    from smtpd.envelope.client import User
    from smtpd.message.sender_check import Fault
    from smtpd.policy.decision import Decision, Step
    from smtpd.policy.engine import CheckResult
    from smtpd.policy.lists import AskQuery
    from smtpd.policy.session import Checking, EndOfData, Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedMail:
    """The envelope in question."""

    client: str
    listener: str
    sender: Address | None
    recipients: Sequence[Address]
    clientname: str | None = None
    helo: str = "client.invalid"
    user: User | None = None
    tls: str | None = None  # TLSv1.2 or TLSv1.3
    size: int | None = None
    content: bytes | None = None  # None: nothing is known of it but its size


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """The end of one phase: for whom, the reply if it refused, and what each rule said."""

    phase: str
    recipient: str | None
    reply: str | None
    rule: str | None
    delay: float
    trail: tuple[Step, ...]


@dataclass(slots=True)
class Trial:
    """All phases as far as they were reached. `refused`: the reply that ended the session or the message."""

    phases: list[PhaseReport] = field(default_factory=list)
    refused: str | None = None
    rejected: dict[str, str] = field(default_factory=dict)  # recipients that were refused, with their replies
    rows: tuple[Recipient, ...] = ()
    headers: bytes = b""

    @property
    def accepted(self) -> bool:
        """Whether the message is accepted for every recipient."""
        return self.refused is None and not self.rejected


class _Unasked:
    """In place of rspamd, where it should not be asked."""

    async def check(self, content: bytes, envelope: Envelope) -> CheckResult | Literal["down", "skipped"]:
        """Nothing."""
        del content, envelope
        return "skipped"


async def attempt(
    config: SmtpdConfig,
    asked: TriedMail,
    *,
    ask: AskQuery | None = None,
    check: bool = False,
    now: Callable[[], datetime] | None = None,
) -> Trial:
    """Take the envelope through all phases. `ask` answers list queries; `check` has rspamd look at the content."""
    settings = config.policy.contentcheck
    checker = ContentChecker(settings) if check and settings is not None else None
    checking: Checking = checker or _Unasked()
    client = Client(asked.client, 0, asked.listener, helo=asked.helo, extended=True, name=asked.clientname)
    if asked.tls is not None:
        client.tls = TlsFacts(asked.tls, "", 0)
    limits = _limits(config, asked)
    session = PolicySession(
        load_policy(config),
        client,
        Sources(ask=ask, check=checking, header=Extent(limits.maxheader, limits.maxheaderlines)),
        config.environment.database.partitions.count,
        explain=True,
        now=now or (lambda: datetime.now(UTC)),
    )
    outcome = Trial()
    try:
        await _session(outcome, session, config, client, asked)
    finally:
        if checker is not None:
            await checker.close()
    return outcome


async def _session(
    outcome: Trial, session: PolicySession, config: SmtpdConfig, client: Client, asked: TriedMail
) -> None:
    """The phases in the order of SMTP; returns at the first that refuses."""
    size = asked.size if asked.size is not None or asked.content is None else len(asked.content)
    passed = (
        _passes(outcome, "connect", await session.connect())
        and _passes(outcome, "helo", await session.helo())
        and await _login(outcome, session, client, asked)
        and _passes(outcome, "mailfrom", await session.mailfrom(asked.sender, size))
    )
    if not passed:
        return
    for recipient in asked.recipients:
        if not may_relay(client, config.relay.networks):
            outcome.rejected[str(recipient)] = replies.R554_RELAY_DENIED
            continue
        decision, _ = await session.rcptto(recipient)
        outcome.phases.append(_phase_report("rcptto", decision, recipient))
        if not decision.accepted:
            outcome.rejected[str(recipient)] = decision.reply or ""
    if len(outcome.rejected) == len(asked.recipients):
        return
    fault = _originator_fault(config, asked) if config.authentication.checkfrom else None
    if fault is not None:
        outcome.refused = NOT_OWN[fault]
        return
    end: EndOfData = await session.eod(asked.content or b"", size=None if asked.content is not None else size or 0)
    if _passes(outcome, "eod", end.decision):
        outcome.rows, outcome.headers = end.recipients, end.headers


async def _login(outcome: Trial, session: PolicySession, client: Client, asked: TriedMail) -> bool:
    """Authenticate, if the envelope is a user's; whether the user may use the sender."""
    if asked.user is None:
        return True
    client.user = asked.user
    if not _passes(outcome, "auth", await session.auth()):
        return False
    if not asked.user.may_send_as(asked.sender):
        outcome.refused = replies.R553_SENDER
        return False
    return True


def _originator_fault(config: SmtpdConfig, asked: TriedMail) -> Fault | None:
    if asked.user is None or asked.content is None:
        return None
    adds = asked.sender is not None and _limits(config, asked).addheaders != "never"
    return originator_fault(asked.user, asked.content, adds_from=adds)


def _limits(config: SmtpdConfig, asked: TriedMail) -> DataPhase:
    return next(server for server in config.servers if server.id == asked.listener).phases.data


def _passes(outcome: Trial, phase: str, decision: Decision) -> bool:
    """Write down a phase; whether it lets the client go on."""
    outcome.phases.append(_phase_report(phase, decision))
    outcome.refused = None if decision.accepted else decision.reply
    return decision.accepted


def _phase_report(phase: str, decision: Decision, recipient: Address | None = None) -> PhaseReport:
    return PhaseReport(
        phase,
        None if recipient is None else str(recipient),
        None if decision.accepted else decision.reply,
        decision.rule,
        decision.delay,
        decision.trail,
    )
