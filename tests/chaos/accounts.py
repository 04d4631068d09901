"""accounts — the fate of every recipient: delivered, duplicated, lost, refused or unknown

Owns: Accounts, both sides of a run by sender and recipient; Figures, their totals; which arrivals were in flight
    when a fault struck, and so may be followed by another.
Guarantees: a recipient counts as accepted only when the final dot was answered 250. Mail without a reply, or with 451
    when a COMMIT's answer was lost, is counted separately: it may arrive, and need not. Content is compared octet by
    octet, without our own Received field. Each duplicate must follow an arrival that was in flight: that other mail was
    does not excuse it. Pure: times are arguments.
See: RFC 5321 section 6.1; scripts/demo/ledger.py, which has no times and no missing replies.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from scripts.demo.ledger import without_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from scripts.demo.sample_mail import Sample
    from scripts.sink.records import Received

type Key = tuple[str, str]
#: The nth arrival of a recipient, from 1.
type Arrival = tuple[Key, int]


@dataclass(slots=True)
class Entry:
    """One recipient. reply: "" when the connection died first, None while none has come; times are monotonic."""

    digest: str
    reply: str | None = None
    replied: float = 0.0
    arrivals: list[float] = field(default_factory=list)
    altered: bool = False

    @property
    def accepted(self) -> bool:
        """Whether we answer for it."""
        return self.reply is not None and self.reply.startswith("250")


@dataclass(frozen=True, slots=True)
class Figures:
    """A run in recipients.

    duplicated: arrivals beyond the first, of any recipient. unknown: no reply was received; surprising: of these and of
    the refused, those that arrived nevertheless; only the lost answer to a COMMIT can cause that.
    """

    accepted: int
    delivered: int
    lost: int
    duplicated: int
    altered: int
    refused: int
    unknown: int
    surprising: int

    def __str__(self) -> str:
        return (
            f"accepted={self.accepted} delivered={self.delivered} lost={self.lost} duplicates={self.duplicated} "
            f"altered={self.altered} refused={self.refused} unknown={self.unknown} surprising={self.surprising}"
        )


class Accounts:
    """Collects both sides."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.accepted = self.arrived = self.refusals = 0  # so far: replies 250, arrivals, replies 4yz and 5yz
        self.first_accepted = self.first_arrived = 0.0  # since `mark`
        self.outstanding = 0  # accepted and not arrived
        self.in_flight: set[Arrival] = set()

    def submit(self, sample: Sample) -> None:
        """This is about to be sent."""
        digest = hashlib.sha256(sample.content).hexdigest()
        for recipient in sample.recipients:
            self.entries[sample.sender, recipient] = Entry(digest)

    def answer(self, sample: Sample, replies: Iterable[str], at: float) -> None:
        """The reply received for each recipient."""
        for recipient, reply in zip(sample.recipients, replies, strict=True):
            entry = self.entries[sample.sender, recipient]
            entry.reply, entry.replied = reply, at
            if entry.accepted:
                self.accepted += 1
                self.outstanding += not entry.arrivals
                self.first_accepted = self.first_accepted or at
            elif reply:
                self.refusals += 1

    def arrive(self, record: Received, at: float) -> list[Arrival]:
        """The sink has taken this; it may do so before its sender has read 250. Which arrivals these are."""
        digest = hashlib.sha256(without_trace(record.content or b"")).hexdigest()
        arrivals: list[Arrival] = []
        for recipient in record.recipients:
            entry = self.entries[record.sender, recipient]
            arrivals.append(((record.sender, recipient), len(entry.arrivals) + 1))
            self.outstanding -= entry.accepted and not entry.arrivals
            entry.arrivals.append(at)
            entry.altered |= digest != entry.digest
            self.arrived += 1
            self.first_arrived = self.first_arrived or at
        return arrivals

    def strike(self, claimed: Iterable[Key], *, alive: bool = False) -> None:
        """A fault struck the worker that had claimed these.

        A dead worker sends nothing more: mail that the sink already has may come once more, the rest not. A worker
        that is `alive` may still send the mail that the next one sends too: each message may come once more.
        """
        for key in claimed:
            arrived = len(self.entries[key].arrivals)
            if arrived or alive:
                self.in_flight.add((key, max(1, arrived)))

    def unexplained(self) -> list[Key]:
        """The recipients of duplicates of mail that was not in flight when a fault struck."""
        return [
            key
            for key, entry in self.entries.items()
            for nth in range(1, len(entry.arrivals))
            if (key, nth) not in self.in_flight
        ]

    def promise(self, sender: str, recipient: str, at: float) -> None:
        """The content of this sender's message is to reach another recipient as well."""
        digest = next(entry.digest for (known, _), entry in self.entries.items() if known == sender)
        self.entries[sender, recipient] = Entry(digest, "250 promised", at)
        self.accepted += 1
        self.outstanding += 1

    def expect(self, key: Key, content: bytes) -> None:
        """What is to arrive for it, where that is known only after `submit`."""
        self.entries[key].digest = hashlib.sha256(content).hexdigest()

    def mark(self) -> None:
        """Note again when the first is accepted, and when the first arrives."""
        self.first_accepted = self.first_arrived = 0.0

    def figures(self) -> Figures:
        """As things stand."""
        entries = self.entries.values()
        accepted = [entry for entry in entries if entry.accepted]
        others = [entry for entry in entries if not entry.accepted]
        return Figures(
            accepted=len(accepted),
            delivered=sum(bool(entry.arrivals) for entry in accepted),
            lost=sum(not entry.arrivals for entry in accepted),
            duplicated=sum(max(0, len(entry.arrivals) - 1) for entry in entries),
            altered=sum(entry.altered for entry in entries),
            refused=sum(bool(entry.reply) for entry in others),
            unknown=sum(not entry.reply for entry in others),
            surprising=sum(bool(entry.arrivals) for entry in others),
        )

    def first_after(self, since: float) -> tuple[float, float]:
        """Seconds from then until a recipient was accepted, and until one arrived; infinite when none did."""
        accepted = [entry.replied for entry in self.entries.values() if entry.accepted and entry.replied >= since]
        arrived = [at for entry in self.entries.values() for at in entry.arrivals if at >= since]
        return min(accepted, default=inf) - since, min(arrived, default=inf) - since

    def cleared(self, since: float) -> float:
        """Seconds from then until the last of what had been accepted by then arrived; 0 when all had."""
        waits = [entry.arrivals[0] - since for entry in self._accepted_by(since) if entry.arrivals]
        return max(0.0, *waits, 0.0)

    def outage(self, before: set[Key], after: set[Key], since: float) -> None:
        """PostgreSQL was away for longer than leases last; these had been claimed before it, and are after it.

        What was claimed before or arrived meanwhile may have come again already, and been recorded; what is claimed now
        may come once more.
        """
        for key, entry in self.entries.items():
            if key in before or key in after or (entry.arrivals and entry.arrivals[-1] >= since):
                arrived, earlier = len(entry.arrivals), sum(at < since for at in entry.arrivals)
                last = max(1, arrived) if key in after else arrived - 1
                self.in_flight.update((key, nth) for nth in range(max(1, earlier), last + 1))

    def lost(self) -> list[Key]:
        """The missing recipients."""
        return [key for key, entry in self.entries.items() if entry.accepted and not entry.arrivals]

    def _accepted_by(self, at: float) -> Iterator[Entry]:
        return (entry for entry in self.entries.values() if entry.accepted and entry.replied <= at)
