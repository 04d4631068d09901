"""sections — the sections of a report: titles, meanings, columns, units

Owns: the table SECTIONS, the source of the page, the JSON, the tables and the reference.
Guarantees: pure values; a kind defines the text form of a value everywhere.
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
    """One column of a section: its name in rows and JSON, its heading, and its kind."""

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
    """A report as values: its period, the time of its creation, the source of history, and each section's rows."""

    since: datetime
    until: datetime
    made: datetime
    origin: str
    rows: dict[str, list[dict[str, Any]]]
    cut: frozenset[str]  # sections that have more rows than are listed
    leaves: dict[str, list[str]]  # the recommended division of partition ids; empty if there is none


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
        "Attempts by hour",
        "Attempts in each hour (UTC), and the usual number for that hour of the week.",
        _fields("hour=hour:instant, attempts=attempts:count, usual=usual:number, score=score:number"),
    ),
    Section(
        "unusual",
        "Unusual hours",
        "Hours that differ from the usual by more than chance: a modified z-score beyond 3.5. An hour is judged once "
        "its like was seen three times: of working days after three of them, of week-ends after two weeks, and each "
        "hour of the week by itself after three weeks.",
        _fields("hour=hour:instant, attempts=attempts:count, usual=usual:number, score=score:number"),
    ),
    Section(
        "forecast",
        "The coming week",
        "Expected attempts in each hour; nine hours in ten are between low and high.",
        _fields("hour=hour:instant, expected=expected:number, low=low:number, high=high:number"),
    ),
    Section(
        "reputation",
        "Reputation, last week against before",
        "The share delivered by provider and source address in the last seven days, and in the days before. Blamed: "
        "deferred or refused for reputation, policy or our rate (x.7.x, 421). A trend is more than chance.",
        _fields(
            "provider=provider:text, source=source address:text, trend=trend:text, attempts=attempts:count, "
            "share=delivered:share, before=before:share, change=change:share, blamed_share=blamed:share, "
            "blamed_before=blamed before:share, score=score:number"
        ),
    ),
    Section(
        "warmup",
        "New source addresses",
        "Each day of a source address that began within this period; growth: attempts by those of its day before.",
        _fields(
            "source=source address:text, day=day:instant, number=day number:count, attempts=attempts:count, "
            "growth=growth:number, share=delivered:share, blamed_share=blamed:share"
        ),
    ),
    Section(
        "alarms",
        "Alarms",
        "What is unusual on the last two days: hours by attempts, days of a provider or a source address by the share "
        "delivered. With --store each goes to webhooks once, as report.alarm.",
        _fields(
            "kind=kind:text, subject=of:text, at=at:instant, value=value:number, usual=usual:number, score=score:number"
        ),
    ),
    Section(
        "capacity",
        "Days of history and disk, forecast",
        "Octets that history takes if nothing is removed: now and in 7, 30, 90 and 365 days, by its trend.",
        _fields(
            "history=history:text, day=day:instant, a_day=octets of that day:count, partitions=days kept:count,"
            "octets=octets of all days:count"
        ),
    ),
    Section(
        "destinations",
        "Deliverability by destination",
        "Outcomes of attempts by the recipient's domain.",
        _fields(f"recipientdomain=destination:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "senders",
        "Deliverability by sender",
        "Outcomes of attempts by the sender's domain.",
        _fields(f"senderdomain=sender:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "transports",
        "Deliverability by transport",
        "Outcomes of attempts by transport.",
        _fields(f"transportid=transport:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "sources",
        "Deliverability by source address",
        "Outcomes of attempts by the address we sent from.",
        _fields(f"source=source address:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "campaigns",
        "Deliverability by campaign",
        "Outcomes of attempts by the id that the application gave a mailing (jobid).",
        _fields(f"jobid=campaign:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "providers",
        "Deliverability by provider",
        "Outcomes of attempts by whose mail exchanger was tried.",
        _fields(f"provider=provider:text, {_OUTCOMES}, first_share=delivered of first tries:share"),
    ),
    Section(
        "queue_time",
        "Time in the queue",
        "Time from receipt to the final result, whatever the result.",
        _fields(f"all=of:text, {_TIMES}"),
    ),
    Section(
        "delivery_time",
        "Time to deliver, by destination",
        "Time from receipt to delivery, delivered mail only.",
        _fields(f"recipientdomain=destination:text, {_TIMES}"),
    ),
    Section(
        "transport_time",
        "Time to deliver, by transport",
        "Time from receipt to delivery, delivered mail only.",
        _fields(f"transportid=transport:text, {_TIMES}"),
    ),
    Section(
        "steps",
        "Retries",
        "Deliveries in each step of the retry schedule; reached: the share of all deliveries made by that step.",
        _fields(f"step=step:count, {_OUTCOMES}, reached=reached:share"),
    ),
    Section(
        "wordings",
        "Bounces and deferrals",
        "Replies of peers, each wording once; * replaces the parts that differ between messages.",
        _fields(
            "outcome=outcome:text, reply_code=code:text, reply_enhanced=enhanced:text, wording=wording:text,"
            "attempts=attempts:count, destinations=destinations:count, most_at=most at:text,"
            "example=example:text"
        ),
    ),
    Section(
        "throttling",
        "Destinations that throttle us",
        "Hours in which a destination deferred mail because of our rate.",
        _fields(
            "recipientdomain=destination:text, slowed_hours=slowed hours:count, hours=hours with mail:count,"
            "slowed=attempts slowed:count, let_through=let through an hour:number, calm=in calm hours:number,"
            "last=last:instant"
        ),
    ),
    Section(
        "suppression",
        "Addresses to stop sending to",
        "Addresses that were refused permanently and have accepted no mail since.",
        _fields(
            "recipientlocalpart=local part:text, recipientdomain=domain:text, why=why:text, refusals=refusals:count,"
            "last_refused=last refused:instant, last_reply=last reply:text"
        ),
    ),
    Section(
        "encryption",
        "TLS",
        "Delivered mail by TLS version.",
        _fields("tls=protocol:text, delivered=delivered:count, share=share:share"),
    ),
    Section(
        "in_the_clear",
        "Delivered without TLS",
        "Destinations that received mail without TLS.",
        _fields(
            "recipientdomain=destination:text, plain=without TLS:count,delivered=delivered:count, share=share:share"
        ),
    ),
    Section(
        "weights",
        "Partition balance",
        "The cost of each partition id: the seconds spent on its tries.",
        _fields("partid=partition id:text, attempts=attempts:count, seconds=seconds:seconds, share=share:share"),
    ),
    Section(
        "quarantine",
        "Quarantine",
        "Held mail that was removed, and held mail that was released.",
        _fields(
            "rule=rule:text, removed=removed:count, released=released:count, sent_meanwhile=sent meanwhile:count,"
            "precision=removed of decided:share"
        ),
    ),
    Section(
        "soundness",
        "Soundness of this history",
        "Faults in the rows themselves, and how the report treats them.",
        _fields("fault=looked for:text, rows=rows:count, treatment=treatment:text"),
    ),
)

SECTION: Final = {section.key: section for section in SECTIONS}
