"""sections — what a report consists of: titles, meanings, columns, units

Owns: the table SECTIONS, from which the page, the JSON, the tables and the reference are made.
Guarantees: pure values; a kind says how a value is written everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from datetime import datetime

#: text; count (a whole number); share (0 to 1, written in per cent); seconds; instant (UTC); number.
type Kind = Literal["text", "count", "share", "seconds", "instant", "number"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a section: its name in rows and JSON, what stands above it, how it is written."""

    name: str
    label: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Section:
    """One question and the columns of its answer."""

    key: str
    title: str
    meaning: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A report as values: its period, when it was made, where history came from, and the rows of each section."""

    since: datetime
    until: datetime
    made: datetime
    origin: str
    rows: dict[str, list[dict[str, Any]]]
    cut: frozenset[str]  # sections that have more rows than are given
    leaves: dict[str, list[str]]  # the recommended division of partition ids; empty where there is none


def _fields(text: str) -> tuple[Field, ...]:
    """Fields from `name=label:kind`, one after another, separated by commas."""
    found = []
    for word in text.split(","):
        name, _, rest = word.strip().partition("=")
        label, _, kind = rest.rpartition(":")
        found.append(Field(name, label, kind))  # type: ignore[arg-type]
    return tuple(found)


_OUTCOMES: Final = (
    "attempts=attempts:count, delivered=delivered:count, deferred=deferred:count, failed=failed:count, lost=lost:count,"
    "delivered_share=delivered of attempts:share"
)
_TIMES: Final = (
    "recipients=recipients:count, p50=half within:seconds, p90=90 % within:seconds, p99=99 % within:seconds,"
    "longest=longest:seconds"
)

SECTIONS: Final = (
    Section(
        "volume",
        "Attempts by the hour",
        "Attempts in each hour (UTC), and what is usual for that hour of the week.",
        _fields("hour=hour:instant, attempts=attempts:count, usual=usual:number, score=score:number"),
    ),
    Section(
        "unusual",
        "Unusual hours",
        "Hours further from the usual than chance explains: a modified z-score beyond 3.5.",
        _fields("hour=hour:instant, attempts=attempts:count, usual=usual:number, score=score:number"),
    ),
    Section(
        "forecast",
        "The coming week",
        "Attempts to expect in each hour; nine hours in ten are between low and high.",
        _fields("hour=hour:instant, expected=expected:number, low=low:number, high=high:number"),
    ),
    Section(
        "destinations",
        "Deliverability by destination",
        "Outcomes of the attempts, by domain of the recipient.",
        _fields(f"recipientdomain=destination:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "senders",
        "Deliverability by sender",
        "The same by domain of the sender.",
        _fields(f"senderdomain=sender:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "transports",
        "Deliverability by transport",
        "The same by transport.",
        _fields(f"transportid=transport:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "sources",
        "Deliverability by source address",
        "The same by the address we sent from.",
        _fields(f"source=source address:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "queue_time",
        "Time in the queue",
        "From receipt to the end, whatever the end was.",
        _fields(f"all=of:text, {_TIMES}"),
    ),
    Section(
        "delivery_time",
        "Time to deliver, by destination",
        "From receipt to delivery, of what was delivered.",
        _fields(f"recipientdomain=destination:text, {_TIMES}"),
    ),
    Section(
        "transport_time",
        "Time to deliver, by transport",
        "From receipt to delivery, of what was delivered.",
        _fields(f"transportid=transport:text, {_TIMES}"),
    ),
    Section(
        "steps",
        "Retries",
        "Deliveries by each step of the retry schedule; reached: the share of all deliveries made by then.",
        _fields(f"step=step:count, {_OUTCOMES}, reached=reached:share"),
    ),
    Section(
        "wordings",
        "Bounces and deferrals",
        "Replies of peers, each wording once; * stands for what differs from mail to mail.",
        _fields(
            "outcome=outcome:text, reply_code=code:text, reply_enhanced=enhanced:text, wording=wording:text,"
            "attempts=attempts:count, destinations=destinations:count, most_at=most at:text,"
            "example=example:text"
        ),
    ),
    Section(
        "throttling",
        "Destinations that slow us down",
        "Hours in which a destination deferred mail for our pace.",
        _fields(
            "recipientdomain=destination:text, slowed_hours=slowed hours:count, hours=hours with mail:count,"
            "slowed=attempts slowed:count, let_through=let through an hour:number, calm=in calm hours:number,"
            "last=last:instant"
        ),
    ),
    Section(
        "suppression",
        "Addresses to send to no more",
        "Refused for what they are, and no mail taken since.",
        _fields(
            "recipientlocalpart=local part:text, recipientdomain=domain:text, why=why:text, refusals=refusals:count,"
            "last_refused=last refused:instant, last_reply=last reply:text"
        ),
    ),
    Section(
        "encryption",
        "TLS",
        "How delivered mail was carried.",
        _fields("tls=protocol:text, delivered=delivered:count, share=share:share"),
    ),
    Section(
        "in_the_clear",
        "Delivered without TLS",
        "Destinations that took mail in the clear.",
        _fields(
            "recipientdomain=destination:text, plain=without TLS:count,delivered=delivered:count, share=share:share"
        ),
    ),
    Section(
        "weights",
        "Partition balance",
        "The cost of each partition id: the seconds its tries took.",
        _fields("partid=partition id:text, attempts=attempts:count, seconds=seconds:seconds, share=share:share"),
    ),
    Section(
        "quarantine",
        "Quarantine",
        "Held mail that was removed, and held mail that was released after all.",
        _fields(
            "rule=rule:text, removed=removed:count, released=released:count, sent_meanwhile=sent meanwhile:count,"
            "precision=removed of decided:share"
        ),
    ),
    Section(
        "soundness",
        "Soundness of this history",
        "Oddities in the rows themselves, and what was done with them.",
        _fields("fault=looked for:text, rows=rows:count, treatment=treatment:text"),
    ),
)

SECTION: Final = {section.key: section for section in SECTIONS}
