"""policy_condition — the conditions of a policy rule, and the phase from which each is known

Owns: the section `if` of a rule; the table of which phase knows which condition.
Guarantees: a list that is left out is empty in the model and no condition; an empty list is refused in YAML, because
    it could mean "none" as well as "all". Expressions match in linear time (shared.patterns).
See: docs/reference/policy.md
"""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import Annotated, Final, Literal, get_args
from zoneinfo import ZoneInfo

from shared.config.fields import Checked, Id, IpNetwork, Section, Text, required, setting
from shared.config.smtpd.policy_fields import (
    SOME,
    Address,
    CountComparison,
    DayHours,
    Domain,
    Pattern,
    RateOver,
    ScoreComparison,
    Sender,
    SizeComparison,
    Truth,
    asks,
)
from shared.masking import show

type Path = tuple[str | int, ...]
Phase = Literal["connect", "helo", "auth", "mailfrom", "rcptto", "eod"]
Subject = Literal[
    "client", "clientname", "listener", "helo", "user", "sender", "senderdomain", "recipient", "recipientdomain"
]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
#: The phase from which on a condition, a subject or a placeholder is known; the others are known at connect.
KNOWN_FROM: Final[dict[str, Phase]] = {
    "helo": "helo",
    "user": "auth",
    "authenticated": "mailfrom",
    "sender": "mailfrom",
    "senderdomain": "mailfrom",
    "size": "mailfrom",
    "recipient": "rcptto",
    "recipientdomain": "rcptto",
    "recipients": "rcptto",
    "header": "eod",
    "score": "eod",
    "symbols": "eod",
}
#: The conditions on one recipient; all others are on the message or its client.
OF_RECIPIENT: Final = frozenset({"recipient", "recipientdomain"})


def known_at(name: str, phase: Phase) -> bool:
    """Whether a condition, subject or placeholder can be known at a phase."""
    return PHASES.index(KNOWN_FROM.get(name, "connect")) <= PHASES.index(phase)


def phases_of(name: str) -> str:
    """The phases that know a condition, as written in messages."""
    return ", ".join(PHASES[PHASES.index(KNOWN_FROM.get(name, "connect")) :])


def zone(name: str) -> tzinfo:
    """A zone of the IANA database; UTC is known without one. Raises KeyError, ValueError or OSError."""
    return UTC if name == "UTC" else ZoneInfo(name)


def _zone(value: object) -> str:
    if isinstance(value, str):
        try:
            zone(value)
        except (KeyError, ValueError, OSError):
            pass
        else:
            return value
    raise ValueError(f"{show(value)} is not a time zone; allowed: a name of the IANA database, such as Europe/Berlin")


class TimeSpan(Section):
    """Hours on days of the week."""

    days: Annotated[list[Day], SOME] = setting(
        list(get_args(Day)), "The days on which the span begins.", unit="list of mon, tue, wed, thu, fri, sat, sun"
    )
    hours: DayHours = setting(
        "00:00-24:00", "Start and end (exclusive); 22:00-06:00 ends on the next day.", unit="hours and minutes"
    )
    zone: Annotated[str, Checked(_zone, {"type": "string"})] = setting(
        "UTC", "The time zone of days and hours.", unit="IANA time zone"
    )


class RateCondition(Section):
    """A rate that the rule counts: more than so many in a time."""

    key: Annotated[list[Subject], SOME] = required(
        "What is counted separately: each combination of these values has its own count; client is one host, for IPv6 "
        "its /64.",
        unit="list of client, clientname, listener, helo, user, sender, senderdomain, recipient, recipientdomain",
    )
    over: RateOver = required(
        "True if there were more than this number in this time; only sessions or messages that match the rule's other "
        "conditions count.",
        unit="number/duration",
    )


class ListCondition(Section):
    """Membership in one of policy.lists."""

    list: Id = required("The list to look in.", unit="id of one of policy.lists")
    of: Subject = required(
        "The value of the session or message to look up.",
        unit="client, clientname, listener, helo, user, sender, senderdomain, recipient or recipientdomain",
    )


class Condition(Section):
    """The conditions of a rule: all that are given must match; of a list, one entry must."""

    client: Annotated[list[IpNetwork], SOME] = asks("The networks the client connects from.", unit="IP networks")
    clientname: Annotated[list[Domain], SOME] = asks(
        "The client's host name, if it is known; *.example.com is every name below example.com.", unit="host names"
    )
    helo: Annotated[list[Pattern], SOME] = asks("The client's name in HELO or EHLO.", unit="patterns")
    user: Annotated[list[Text], SOME] = asks("The users the client authenticated as.", unit="names")
    authenticated: Truth | None = setting(
        None, "Whether the client authenticated.", unit="true or false", absent="not asked"
    )
    tls: Truth | None = setting(None, "Whether the session is under TLS.", unit="true or false", absent="not asked")
    tlsversion: Literal["1.2", "1.3"] | None = setting(
        None, "The lowest version of TLS.", unit="version in quotes, 1.2 or 1.3", absent="not asked"
    )
    tlsverified: Truth | None = setting(
        None, "Whether the client showed a certificate that was verified.", unit="true or false", absent="not asked"
    )
    sender: Annotated[list[Sender], SOME] = asks(
        'The envelope senders, in any case and quoted or not; "" is the null sender.', unit="addresses"
    )
    senderdomain: Annotated[list[Domain], SOME] = asks(
        "The domains of the envelope sender; *.example.com is every domain below example.com.", unit="domains"
    )
    recipient: Annotated[list[Address], SOME] = asks(
        "The envelope recipients, in any case and quoted or not.", unit="addresses"
    )
    recipientdomain: Annotated[list[Domain], SOME] = asks(
        "The domains of the envelope recipient; *.example.com is every domain below example.com.",
        unit="domains",
    )
    recipients: CountComparison | None = setting(
        None,
        "How many recipients the message has; at rcptto, those so far and this one.",
        unit="comparison such as >10",
        absent="not asked",
    )
    size: SizeComparison | None = setting(
        None,
        "The size of the message. Before eod this is what MAIL declared; if MAIL declared no size, there is no match.",
        unit="comparison such as >1MiB",
        absent="not asked",
    )
    header: dict[Text, Annotated[list[Pattern], SOME]] = setting(
        {},
        "Header fields with patterns: one pattern must match one field of that name; encoded words are decoded,"
        " in the first 64 KiB of those fields.",
        unit="list of patterns by field name",
    )
    score: ScoreComparison | None = setting(
        None,
        "The content check's score; using it calls the check.",
        unit="comparison such as >=7.5",
        absent="not asked",
    )
    symbols: Annotated[list[Pattern], SOME] = asks(
        "The content check's symbols; using them calls the check.", unit="patterns"
    )
    time: Annotated[list[TimeSpan], SOME] = asks("The time of the week.", unit="spans of days, hours and zone")
    rate: RateCondition | None = setting(
        None, "True above a rate. Evaluated after all other conditions.", unit="section", absent="not asked"
    )
    inlist: ListCondition | None = setting(
        None, "Membership in a list of policy.lists.", unit="section of list and of", absent="not asked", alias="in"
    )
    unless: "Condition | None" = setting(
        None,
        "True if not all conditions in it match.",
        unit="section of conditions",
        absent="not asked",
        alias="not",
    )
    any: Annotated[list["Condition"], SOME] = asks("True if one of these matches.", unit="sections of conditions")
    all: Annotated[list["Condition"], SOME] = asks("True if all of these match.", unit="sections of conditions")

    def walk(self, path: Path = ()) -> "Iterator[tuple[Path, Condition]]":
        """This condition and those inside it, each with its key path."""
        yield path, self
        if self.unless is not None:
            yield from self.unless.walk((*path, "not"))
        for key, inner in (("any", self.any), ("all", self.all)):
            for index, condition in enumerate(inner):
                yield from condition.walk((*path, key, index))

    def asked(self) -> Iterator[tuple[Path, str]]:
        """The conditions, here and inside: key path, and the name as in KNOWN_FROM."""
        for path, condition in self.walk():
            for name in condition.model_fields_set - {"rate", "inlist", "unless", "any", "all"}:
                if getattr(condition, name) not in (None, [], {}):
                    yield (*path, name), name
            if condition.rate is not None:
                yield from (((*path, "rate", "key", at), name) for at, name in enumerate(condition.rate.key))
            if condition.inlist is not None:
                yield (*path, "in", "of"), condition.inlist.of


Condition.model_rebuild()

# Conditions that are known only at the end of the content; a standing hold with one of them is checked then.
ONLY_AT_EOD: Final = frozenset({"header", "score", "symbols", "size", "recipients"})
