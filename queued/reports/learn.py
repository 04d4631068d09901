"""learn — learns from bounces and feedback reports which addresses get no more mail

Owns: the proof that a report needs before it counts, and its effect on the table of suppressions.
Guarantees: forged mail to us cannot suppress an address: a report counts only for an address to which we sent
    the message that it names, by a signed return path or an id that cannot be guessed. One report counts once, however
    often it is read.
Raises: psycopg's exceptions; the caller defers.
See: shared/mail/suppression.py; sql/queries/delivery/suppression.sql, suppression_note;
    docs/how-to/deliver/suppression.md.
Bugs: a recipient of a message can report on its other recipients; with evidence `known`, its sender can too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from shared.mail import address, suppression
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta
    from uuid import UUID

    from queued.reports.read import Finding, IncomingReport
    from queued.values import Claimed
    from shared.config.suppression import Suppression
    from shared.mail.message import Address

_ABOUT_CONTENT: Final = ("5.6.", "5.7.", "4.6.", "4.7.")
_MESSAGES: Final = 5  # named by one report


class Weight(NamedTuple):
    """How much a finding counts."""

    hard: bool  # one is enough
    keep: timedelta | None  # None: for ever


def weigh(kind: Literal["bounce", "arf"], finding: Finding, settings: Suppression) -> Weight | None:
    """How much this failure counts; None when it does not. Pure."""
    if kind == "arf":
        return Weight(hard=True, keep=settings.keepfeedback)
    status = finding.status or ""
    if status in settings.hard:
        return Weight(hard=True, keep=settings.keep)
    if settings.soft == 0 or status.startswith(_ABOUT_CONTENT) or not status.startswith(("4.", "5.")):
        return None
    return Weight(hard=False, keep=settings.keep)


def takes_reports(target: str, settings: Suppression) -> bool:
    """Whether reports come in at this address, spelled as in the table."""
    return target in settings.addresses or target.rpartition("@")[2] in settings.addresses


async def learn(
    connection: database.Connection,
    claimed: Claimed,
    report: IncomingReport | None,
    settings: Suppression,
    secret: bytes | None,
) -> str:
    """Note what a message proves that reports this; what came of it, in words."""
    if report is None:
        return "no report"
    if report.feedback is not None and report.feedback not in settings.feedback:
        return f"feedback {report.feedback}: nothing is suppressed for it"
    messages = _messages(claimed, report, settings, secret)
    counting = [(each, weight) for each in report.findings if (weight := weigh(report.kind, each, settings))]
    known = await _known(connection, [finding for finding, _ in counting], messages)
    noted = 0
    for (finding, weight), whom in zip(counting, known, strict=True):
        # Any client may write to an address for reports, and learns the id: such mail proves nothing of its recipient.
        if whom is not None and not takes_reports(suppression.target(whom), settings):
            await _note(connection, claimed, report, whom, finding, weight, settings)
            await _keep(connection, claimed, report, whom, finding, messages)
            noted += 1
    if not noted:
        return f"a report without {'a failure that counts' if messages else 'proof that we sent the message'}"
    return f"a report on {noted}"


def _messages(claimed: Claimed, report: IncomingReport, settings: Suppression, secret: bytes | None) -> list[UUID]:
    """The messages of ours that the report proves to have."""
    named: list[UUID | None] = []
    if secret is not None:
        paths = [claimed.recipient.localpart, *(path.partition("@")[0] for path in report.return_paths)]
        named += [suppression.named_message(path, secret) for path in paths]
    if settings.evidence == "known":
        named += report.ids
    return list(dict.fromkeys(message for message in named if message is not None))[:_MESSAGES]


async def _known(
    connection: database.Connection, findings: Sequence[Finding], messages: list[UUID]
) -> list[str | None]:
    """For each finding the address that it is about, if one of these messages went there. One question for all."""
    if not messages:
        return [None] * len(findings)
    named = [[whom for written in finding.recipients if (whom := _address(written))] for finding in findings]
    asked = list(dict.fromkeys(whom for each in named for whom in each))
    sent: set[Address] = set()
    if asked:
        [row] = await database.fetch(
            connection,
            "report_known",
            messages=messages,
            localparts=[whom.localpart for whom in asked],
            domains=[whom.domain for whom in asked],
        )
        sent = {asked[place - 1] for place in row.places}
    known: list[str | None] = []
    for finding, addresses in zip(findings, named, strict=True):
        if finding.recipients:
            known.append(next((str(whom) for whom in addresses if whom in sent), None))
        else:
            known.append(await _only_recipient(connection, messages))
    return known


async def _only_recipient(connection: database.Connection, messages: list[UUID]) -> str | None:
    """The one recipient of the first of these messages that has no other."""
    for message in messages:
        [row] = await database.fetch(connection, "report_only_recipient", message=message)
        if row.address is not None:
            return str(row.address)
    return None


def _address(written: str) -> Address | None:
    try:
        return address.parse(written)
    except address.AddressRefused:
        return None


async def _keep(
    connection: database.Connection,
    claimed: Claimed,
    report: IncomingReport,
    whom: str,
    finding: Finding,
    messages: list[UUID],
) -> None:
    """Keep what the report says of the recipients of these messages at this address, for webhooks."""
    localpart, _, domain = whom.rpartition("@")
    await database.fetch(
        connection,
        "report_milestone",
        kind="bounced" if report.kind == "bounce" else "complained",
        messages=messages,
        localpart=localpart,
        domain=domain,
        evidence=claimed.message_id,
        reason=" ".join(filter(None, [finding.status, finding.reason])),
    )


async def _note(
    connection: database.Connection,
    claimed: Claimed,
    report: IncomingReport,
    whom: str,
    finding: Finding,
    weight: Weight,
    settings: Suppression,
) -> None:
    now: datetime = claimed.now()
    [row] = await database.fetch(
        connection,
        "suppression_note",
        now=now,
        target=suppression.target(whom),
        reason=" ".join(filter(None, [finding.status, finding.reason])),
        source=report.kind,
        evidence=claimed.message_id,
        hard=weight.hard,
        keep=weight.keep,
        window=settings.window,
        enough=max(settings.soft, 1),
    )
    if row.active:
        events.emit("suppression.added", address=whom, source=report.kind, reason=finding.reason, count=row.count)
    else:
        events.emit("suppression.noted", address=whom, reason=finding.reason, count=row.count)
