"""session — policy's decisions so far about one connection

Owns: turning a client and its commands into facts, questions into their answers, and decisions into queue rows.
Guarantees: decisions are made by smtpd.policy.engine; this file only asks its questions and remembers the answers. A
    change by connect, helo or auth holds for the session from then on, by mailfrom or eod for the message, by rcptto
    for the recipient. A question without an answer defers the client (451 4.3.0), and accepts nothing. The caller
    waits for delays.
See: docs/reference/policy.md; RFC 5321 sections 3.1 to 3.3.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, Protocol

from shared.observe import events
from smtpd import replies
from smtpd.policy import recipient as policy_recipient
from smtpd.policy.decision import UNCHANGED, Changes, Decision, Known, Membership, Rate, Unanswered
from smtpd.policy.engine import decide, merged
from smtpd.policy.facts import CheckResult, Facts
from smtpd.policy.headers import WHOLE, Extent, HeaderFields, field_lines
from smtpd.policy.lists import ListUnavailable, QueryList
from smtpd.rates.counters import short

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.mail.message import Address, Recipient
    from smtpd.envelope.client import Client
    from smtpd.policy.compile import CompiledPolicy
    from smtpd.policy.decision import Question
    from smtpd.policy.facts import Phase
    from smtpd.policy.lists import AskQuery

_SHARE: Final = 100  # recipients decided in one go, about 5 ms with 50 rules


class Counting(Protocol):
    """The part of smtpd.rates.limits.Rates that policy needs."""

    async def count(self, key: str, most: int, window: float, n: int = 1) -> float:
        """Seconds to wait until one more hit of `key` is within `most` in `window` seconds; 0 when it is."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The facts of a message that the content check gets."""

    client: str
    clientname: str | None
    helo: str | None
    user: str | None
    sender: str  # empty for the null sender
    recipients: tuple[str, ...]
    tls: str | None = None  # version
    queueid: str | None = None


class Checking(Protocol):
    """The content check (smtpd.policy.content_check.ContentChecker)."""

    async def check(self, content: bytes, envelope: Envelope) -> CheckResult | Literal["down", "skipped"]:
        """Its verdict, or why there is none."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where answers come from. Without rates nothing is ever over; without `ask` query lists cannot say."""

    rates: Counting | None = None
    ask: AskQuery | None = None
    check: Checking | None = None
    header: Extent = WHOLE  # the part that rules see


@dataclass(frozen=True, slots=True)
class EndOfData:
    """The end of a message: what was decided, its queue rows, and the field lines to put on top of the content."""

    decision: Decision
    recipients: tuple[Recipient, ...]
    headers: bytes = b""


def _utcnow() -> datetime:
    return datetime.now(UTC)


class PolicySession:
    """One connection's dealings with policy. One phase at a time; the order is SMTP's."""

    def __init__(
        self,
        policy: CompiledPolicy,
        client: Client,
        sources: Sources,
        partitions: int,
        *,
        now: Callable[[], datetime] = _utcnow,
        explain: bool = False,
        connected: Changes = UNCHANGED,
    ) -> None:
        """`client` is read at each phase; `explain` fills the trails; `connected`: the changes made by connect."""
        self._policy, self._client, self._sources = policy, client, sources
        self._partitions, self._now, self._explain = partitions, now, explain
        self.connected, self._helo, self._auth, self._mail = connected, connected, UNCHANGED, UNCHANGED
        self._known_as: str | None = None  # the user that phase auth let in
        self._sender: Address | None = None
        self._size: int | None = None
        self._queueid: str | None = None
        self._recipients: list[tuple[Address, Changes]] = []
        self._rows: list[Recipient] = []  # of these, as known at RCPT

    async def connect(self) -> Decision:
        """Before the greeting."""
        await self._policy.refresh()
        decision = await self._unaddressed("connect", UNCHANGED)
        self.connected = self._helo = decision.changes
        return decision

    async def helo(self) -> Decision:
        """After HELO or EHLO, which starts over (also after STARTTLS). An authentication before it stays.

        A client that is a user's without AUTH, by its certificate or XCLIENT, goes through the phase auth here.
        """
        decision = await self._unaddressed("helo", self.connected)
        if not decision.accepted:
            return decision
        self._helo = decision.changes
        user = self._client.user
        if user is None or user.name == self._known_as:
            return decision
        proven = await self.auth()
        if not decision.delay and not decision.trail:
            return proven
        return replace(proven, delay=max(decision.delay, proven.delay), trail=decision.trail + proven.trail)

    async def auth(self) -> Decision:
        """After the client has authenticated, before its 235."""
        decision = await self._unaddressed("auth", UNCHANGED)
        if decision.accepted:
            self._auth = decision.changes
            self._known_as = None if self._client.user is None else self._client.user.name
        return decision

    async def mailfrom(self, sender: Address | None, size: int | None = None) -> Decision:
        """After a valid MAIL; `size` as declared. Begins a message."""
        self._sender, self._size = sender, size
        self._recipients.clear()
        self._rows.clear()
        await self._policy.refresh()
        so_far = self._helo if self._client.user is None else merged(self._helo, self._auth)
        decision = await self._unaddressed("mailfrom", so_far, sender=sender, size=size)
        self._mail = decision.changes
        return decision

    async def rcptto(self, recipient: Address, held: Changes | None = None) -> tuple[Decision, Recipient]:
        """After a valid RCPT of a client that may relay: the decision, and the row as far as known before eod.

        It counts from here on only if the decision accepts it. held: puts it on hold, despite any rule.
        """
        facts = self._facts(
            sender=self._sender, size=self._size, recipient=recipient, recipients=len(self._recipients) + 1
        )
        decision = await self._decide("rcptto", facts, merged(self._mail, held) if held else self._mail)
        row = self._row(facts, decision.changes)
        if decision.accepted:
            self._recipients.append((recipient, decision.changes))
            self._rows.append(row)
        return decision, row

    async def eod(self, content: bytes, queueid: str | None = None, *, size: int | None = None) -> EndOfData:
        """After the content has passed the checks of its form; `queueid` is what the log will know it by.

        `size` is for callers without content (`pillarbox policy test`): octets, where it is not that of `content`.
        """
        if self._settled():
            return EndOfData(Decision(), tuple(self._rows))
        self._queueid = queueid
        headers = HeaderFields(content, self._sources.header)
        octets = len(content) if size is None else size
        message = self._facts(sender=self._sender, size=octets, recipients=len(self._recipients), headers=headers)
        known, listener = Known(), self._client.listener
        facts = [replace(message, recipient=recipient) for recipient, _ in self._recipients]
        if self._policy.by_recipient(listener):
            decisions = []
            for number, each in enumerate(facts, start=1):
                if number % _SHARE == 0:
                    await asyncio.sleep(0)  # others want their replies too
                decisions.append(await self._decide("eod", each, UNCHANGED, known, content))
                if not decisions[-1].accepted:
                    break
        elif self._policy.check is not None or self._policy.rules("eod", listener):
            decisions = [await self._decide("eod", message, UNCHANGED, known, content)] * len(facts)
        else:
            decisions = [Decision()] * len(facts)
        last = replace(decisions[-1], delay=max(decision.delay for decision in decisions))
        if not last.accepted:
            return EndOfData(last, ())
        changes = [
            merged(before, decision.changes) for (_, before), decision in zip(self._recipients, decisions, strict=True)
        ]
        rows = tuple(self._row(each, changed) for each, changed in zip(facts, changes, strict=True))
        # An accept for some recipients may have come before a field was added for the rest: the content is one.
        added = dict.fromkeys(field for changed in changes for field in changed.headers)
        return EndOfData(last, rows, field_lines(added))

    def _settled(self) -> bool:
        """Whether nothing is left to ask or to add at the end of data: most mail of most policies."""
        policy = self._policy
        return not (
            policy.check is not None
            or policy.rules("eod", self._client.listener)
            or policy.partitionkey.startswith("header")
            or self._explain
            or any(
                changes.headers or (changes.partitionkey or "").startswith("header") for _, changes in self._recipients
            )
        )

    def _row(self, facts: Facts, changes: Changes) -> Recipient:
        return policy_recipient.row(facts, changes, self._client.user, self._policy.partitionkey, self._partitions)

    def _facts(
        self,
        *,
        sender: Address | None = None,
        size: int | None = None,
        recipient: Address | None = None,
        recipients: int = 0,
        headers: HeaderFields | None = None,
    ) -> Facts:
        client = self._client
        return Facts(
            now=self._now(),
            client=client.address,
            listener=client.listener,
            clientname=client.name,
            helo=client.helo,
            user=None if client.user is None else client.user.name,
            tls=client.tls is not None,
            tlsversion=None if client.tls is None else client.tls.version,
            tlsverified=client.tls is not None and client.tls.verified,
            sender=sender,
            size=size,
            recipient=recipient,
            recipients=recipients,
            headers=headers,
        )

    async def _unaddressed(
        self, phase: Phase, before: Changes, *, sender: Address | None = None, size: int | None = None
    ) -> Decision:
        """Decide in a phase before any recipient; without rules for it there is nothing to find out."""
        if not self._explain and not self._policy.rules(phase, self._client.listener):
            return Decision(changes=before)
        return await self._decide(phase, self._facts(sender=sender, size=size), before)

    async def _decide(
        self, phase: Phase, facts: Facts, before: Changes, known: Known | None = None, content: bytes = b""
    ) -> Decision:
        """Decide, finding out what has to be asked as it comes up."""
        known = known or Known()
        while True:
            try:
                return decide(phase, facts, self._policy, known, before=before, explain=self._explain)
            except Unanswered as lacking:
                question = lacking.question
            try:
                await self._answer(question, known, facts, content)
            except ListUnavailable as error:
                events.emit("policy.list_unavailable", client=facts.client, error=error)
                return Decision("defer", None, replies.R451_LOCAL_ERROR, before)

    async def _answer(self, question: Question, known: Known, facts: Facts, content: bytes) -> None:
        match question:
            case Membership(name, value):
                wanted = self._policy.lists[name]
                if not isinstance(wanted, QueryList) or self._sources.ask is None:
                    raise ListUnavailable(f"{name}: no database to ask")
                known.yes[question] = await wanted.has(value, self._sources.ask)
            case Rate(name, key, limit, seconds):
                rates = self._sources.rates
                wait = 0.0 if rates is None else await rates.count(_counted(name, key), limit, seconds)
                known.yes[question] = wait > 0
            case _:
                known.check = await self._check(facts, content)

    async def _check(self, facts: Facts, content: bytes) -> CheckResult | Literal["down", "skipped"]:
        if self._sources.check is None:
            return "down" if self._policy.check is not None else "skipped"
        return await self._sources.check.check(
            content,
            Envelope(
                client=facts.client,
                clientname=facts.clientname,
                helo=facts.helo,
                user=facts.user,
                sender="" if facts.sender is None else str(facts.sender),
                recipients=tuple(str(recipient) for recipient, _ in self._recipients),
                tls=facts.tlsversion,
                queueid=self._queueid,
            ),
        )


def _counted(rule: str, key: tuple[str, ...]) -> str:
    """The counter's name; values are separated by a character that none of them holds."""
    return "\0".join((f"policy/{rule}", *map(short, key)))
