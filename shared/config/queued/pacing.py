"""pacing — how fast mail may leave, when, and which mail must wait, in queued.yaml

Owns: the section `pacing` (policies and suspends) and the models of a transport's delivery windows.
Guarantees: without the section, nothing is limited beyond a transport's own `concurrency`. A rate is parsed once, here.
    Domains in a match are folded to lower case, as recipients' domains are.
See: Halon's queue policies (fields, concurrency, rate, connect interval); KumoMTA's max_message_rate; Postfix
    default_destination_rate_delay; docs/explanation/pacing.md.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from shared import cron
from shared.config.fields import (
    Checked,
    DomainOrLiteral,
    Duration,
    Id,
    MisplacedError,
    Section,
    Text,
    matching,
    quotes_hint,
    required,
    section,
    setting,
    unique_ids,
    whole,
)
from shared.config.queued.routing import Truth
from shared.errors import ConfigError
from shared.mail.domain import DomainRefused, to_ascii
from shared.masking import show

#: Seconds in each unit a rate may be given in.
UNITS: Final = {"sec": 1, "min": 60, "hour": 3600, "day": 86_400}
#: The fields a policy may count by, in the order of queued.pacing.pace.Fields.
FIELDS: Final = ("transport", "destination", "sender", "tenant", "jobid", "site", "source")
#: Those that are domains, in which case does not matter.
FOLDED: Final = frozenset({"destination", "sender", "site"})

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_RATE: Final = re.compile(r"([1-9][0-9]{0,8})/(sec|min|hour|day)")
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")


class Rate(NamedTuple):
    """At most so many in each span of seconds."""

    amount: int
    seconds: int

    @property
    def per_second(self) -> float:
        """How fast tokens come back."""
        return self.amount / self.seconds

    def __str__(self) -> str:
        return f"{self.amount}/{next(name for name, seconds in UNITS.items() if seconds == self.seconds)}"


def _rate(value: object) -> Rate:
    if isinstance(value, Rate):
        return value
    if isinstance(value, str) and (found := _RATE.fullmatch(value)):
        return Rate(int(found[1]), UNITS[found[2]])
    raise ValueError(f"{show(value)} is not a rate; allowed: N/sec, N/min, N/hour or N/day{quotes_hint(value)}")


def _minutes(value: object) -> int:
    if isinstance(value, str) and (found := _TIME.fullmatch(value)):
        return int(found[1]) * 60 + int(found[2]) if found[1] else 24 * 60
    raise ValueError(f"{show(value)} is not a time of day; allowed: 00:00 to 24:00, in quotes")


def _zone(name: str) -> str:
    cron.zone(name)
    return name


def _site(name: str) -> str:
    try:
        return to_ascii(name)
    except DomainRefused:
        why = "allowed: a name such as (mx1|mx2).example.com, or .example.com"
        raise ValueError(f"{show(name)} is not a site; {why}") from None


RateText = Annotated[Any, Checked(_rate, {"type": "string", "pattern": f"^{_RATE.pattern}$"})]
#: Minutes since midnight, by the clock on the wall.
TimeOfDay = Annotated[int, Checked(_minutes, {"type": "string", "pattern": f"^({_TIME.pattern})$"})]
Zone = Annotated[str, matching(r"[A-Za-z0-9_+/-]{1,64}", "UTC or a name like Europe/Berlin"), AfterValidator(_zone)]
Value = Annotated[str, matching(r"[^\0\s]{1,255}", "a value, or .example.com, which means everything below that one")]
Site = Annotated[Value, AfterValidator(_site)]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
FieldName = Literal["transport", "destination", "sender", "tenant", "jobid", "site", "source"]


def _match(what: str, unit: str) -> Any:
    return setting([], f"Only {what}; [] is any.", unit=unit)


class Match(Section):
    """A selection of mail: all fields that are given must match, each by one of its values."""

    transport: list[Value] = _match("mail over these transports", "list of ids")
    destination: list[DomainOrLiteral] = _match(
        "mail to these domains; .example.com is every domain below that one", "list of domains"
    )
    sender: list[DomainOrLiteral] = _match("mail from these domains", "list of domains")
    tenant: list[Value] = _match("mail of these tenants, metadata `tenant`", "list of words")
    jobid: list[Value] = _match("mail with these jobids", "list of words")
    site: list[Site] = _match("mail to these groups of mail exchangers", "list of sites")
    source: list[Value] = _match("mail from these source addresses of ours", "list of addresses")


def match_of(values: Mapping[str, Sequence[str]]) -> Match:
    """The match of these values by field; ConfigError names the field whose value cannot be used."""
    try:
        return Match.model_validate({name: list(given) for name, given in values.items()})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"{first['loc'][0]}: {first['msg'].removeprefix('Value error, ')}") from None


class Policy(Section):
    """A limit on mail with the same values in some fields."""

    id: Id = required(
        "The name of the policy; last_error of mail that waits for it shows the name.",
        unit="id, unique among the policies",
    )
    fields: list[FieldName] = setting(
        [],
        "What is counted separately: the limits apply to each combination of these fields; [] counts all matching "
        "mail together. A policy that counts by tenant, jobid, sender or source does not limit mail without it (Halon "
        "fields).",
        unit="list of transport, destination, sender, tenant, jobid, site, source",
    )
    match: Match = section(Match, "Which mail the policy applies to.")
    concurrency: Annotated[int, whole(1, 1_000_000)] | None = setting(
        None,
        "The most messages being delivered at the same time (Halon concurrency; Postfix "
        "default_destination_concurrency_limit).",
        unit="messages",
        absent="no limit",
    )
    rate: RateText | None = setting(
        None,
        "The most messages started in a period: N/sec, N/min, N/hour or N/day (Halon rate; KumoMTA max_message_rate).",
        unit="rate",
        absent="no limit",
    )
    burst: Annotated[int, whole(1, 1_000_000)] | None = setting(
        None,
        "How many messages may start at once after a pause (KumoMTA max_burst).",
        unit="messages",
        absent="one second's worth of the rate, at least 1",
    )
    connectinterval: Duration = setting(
        "0s",
        "The least time between two new connections; 0s: no limit (Halon connect interval).",
        unit="duration",
    )
    shared: Truth = setting(
        False,
        "Whether all workers share these limits, counted in PostgreSQL. Otherwise they apply to each worker, which is "
        "exact if no two workers have the same destination.",
        unit="truth",
    )

    @model_validator(mode="after")
    def _usable(self) -> Self:
        problems: list[tuple[tuple[str | int, ...], str]] = []
        if self.burst is not None and self.rate is None:
            problems.append((("burst",), "requires rate; allowed: both, or neither"))
        if self.shared and self.connectinterval:
            text = "is counted by each worker for itself; allowed: a policy of its own without shared"
            problems.append((("connectinterval",), text))
        if self.concurrency is None and self.rate is None and not self.connectinterval:
            problems.append(((), f"policy {show(self.id)} limits nothing; allowed: concurrency, rate, connectinterval"))
        if problems:
            raise MisplacedError(problems)
        return self

    @property
    def most(self) -> int:
        """How many tokens the bucket holds."""
        return self.burst or max(1, int(self.rate.per_second if self.rate else 1))


class Suspend(Section):
    """Mail that waits until the operator says otherwise."""

    match: Match = section(Match, "Which mail is suspended; without any field, all mail.")
    reason: Text = required("The reason, which last_error of the mail shows.", unit="text")


class Pacing(Section):
    """Limits on how fast mail leaves, and mail that must wait."""

    policies: Annotated[list[Policy], AfterValidator(unique_ids)] = setting(
        [],
        "Limits on mail that has some fields in common; every policy that applies must allow a message.",
        unit="list of policies",
    )
    suspends: list[Suspend] = setting(
        [], "Suspended mail, besides that of `pillarbox suspend`.", unit="list of match and reason"
    )


class Window(Section):
    """A time of the week in which mail may leave."""

    days: Annotated[list[Day], Field(min_length=1)] = setting(
        list(DAYS), "The days on which the window begins.", unit="list of mon, tue, wed, thu, fri, sat, sun"
    )
    begin: TimeOfDay = setting(
        "00:00", "When the window begins, in local time of its zone.", unit="time of day", alias="from"
    )
    end: TimeOfDay = setting(
        "24:00",
        "When the window ends; a time before `from` is on the next day, and the same time as `from` is a whole day "
        "later.",
        unit="time of day",
        alias="to",
    )
    zone: Zone = setting("UTC", "The time zone of the window.", unit="name of a time zone")


Windows = Annotated[list[Window], Field(max_length=100)]
