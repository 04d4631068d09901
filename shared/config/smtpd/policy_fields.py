"""policy_fields — the types of values in policy rules

Owns: the types of addresses, domains, comparisons, replies, header fields and placeholders in rules, and the errors
    about them.
Guarantees: domains are in the one spelling of shared/mail/domain.py, in addresses too, while local parts stay as
    written (RFC 5321 section 2.4); a value for a reply or a header field cannot break its line.
Raises: ValueError inside pydantic, worded `VALUE is not WHAT; allowed: ...`.
See: RFC 5321 section 4.2.1 (reply codes), RFC 3463 section 2 (enhanced codes), RFC 5322 section 2.2 (field names).
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field

from shared.config.fields import Checked, domain_matching, header_name, matching, quotes_hint
from shared.config.units import parse_duration, parse_size
from shared.masking import show
from shared.patterns import matcher

_DOMAIN = r"[\w-]+(\.[\w-]+)*"
_ADDRESS = r"[^\s@<>]+@[^\s@<>]+"

_domain = domain_matching(
    rf"(\*\.)?{_DOMAIN}", "a domain such as example.com, or *.example.com for those below it"
).read
_read_address = matching(_ADDRESS, "an address such as user@example.com").read
_read_behind = domain_matching(rf"{_DOMAIN}|\[[^\s\]]+\]", "a domain").read


def _address(value: object) -> str:
    local, at, domain = str(_read_address(value)).rpartition("@")
    try:
        return f"{local}{at}{_read_behind(domain)}"
    except ValueError:
        raise ValueError(f"{show(value)} is not usable here; allowed: an address such as user@example.com") from None


def _sender(value: object) -> str:
    if value == "":
        return ""
    try:
        return _address(value)
    except ValueError:
        allowed = 'an address such as user@example.com, or "" for the null sender'
        raise ValueError(f"{show(value)} is not a sender; allowed: {allowed}{quotes_hint(value)}") from None


def _pattern(value: object) -> str:
    if not isinstance(value, str):
        allowed = "text such as *.example.com, or /a regular expression/"
        raise ValueError(f"{show(value)} is not a pattern; allowed: {allowed}{quotes_hint(value)}")  # noqa: TRY004 - for pydantic
    matcher(value)
    return value


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{show(value)} is not usable here; allowed: true or false")


class Comparison(NamedTuple):
    """`>10`: how a fact has to compare with a value."""

    sign: str
    value: float

    def __str__(self) -> str:
        return f"{self.sign}{self.value:g}" if self.value < 10**6 else f"{self.sign}{self.value:.0f}"


_COMPARISON: Final = re.compile(r"(>=|<=|>|<|=)\s*(.+)")


def _comparison(read: Callable[[str], float], allowed: str) -> Callable[[object], Comparison]:
    def compare(value: object) -> Comparison:
        if isinstance(value, Comparison):
            return value
        if isinstance(value, str) and (match := _COMPARISON.fullmatch(value)):
            try:
                return Comparison(match[1], read(match[2]))
            except ValueError:
                pass
        raise ValueError(f"{show(value)} is not a valid comparison; allowed: {allowed}")

    return compare


def _count(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", text):
        return int(text)
    raise ValueError(text)


def _number(text: str) -> float:
    if re.fullmatch(r"-?[0-9]{1,6}(\.[0-9]{1,6})?", text):
        return float(text)
    raise ValueError(text)


class Over(NamedTuple):
    """`100/1h`: more than `limit` in `seconds`."""

    limit: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.limit} in {self.seconds:g}s"


def _over(value: object) -> Over:
    if isinstance(value, Over):
        return value
    if isinstance(value, str) and (match := re.fullmatch(r"([0-9]{1,9})/([0-9dhms]{1,40})", value)):
        try:
            seconds = parse_duration(match[2]).total_seconds()
        except ValueError:
            seconds = 0
        if 1 <= seconds <= 7 * 86400:
            return Over(int(match[1]), seconds)
    raise ValueError(f"{show(value)} is not a valid rate; allowed: a number and a time from 1s to 7d, such as 100/1h")


class Hours(NamedTuple):
    """Minutes of a day, from `start` until before `end`; an end at or before the start is on the next day."""

    start: int
    end: int

    def __str__(self) -> str:
        return "-".join(f"{at // 60:02}:{at % 60:02}" for at in self)


def _hours(value: object) -> Hours:
    if isinstance(value, Hours):
        return value
    clock = r"([01][0-9]|2[0-3]|24(?=:00)):([0-5][0-9])"
    if isinstance(value, str) and (match := re.fullmatch(rf"{clock}-{clock}", value)):
        start, end = int(match[1]) * 60 + int(match[2]), int(match[3]) * 60 + int(match[4])
        if start != end and start < 24 * 60:
            return Hours(start, end)
    raise ValueError(f"{show(value)} is not a valid span of hours; allowed: text such as 08:00-18:00 or 22:00-06:00")


def _reply(kind: Literal["4", "5"]) -> Callable[[object], str]:
    code = rf"{kind}[0-5][0-9] {kind}\.[0-9]{{1,3}}\.[0-9]{{1,3}}"
    written = re.compile(rf"{code} [\x21-\x7e]([\x20-\x7e]{{0,398}}[\x21-\x7e])?")
    example = {"4": "451 4.7.1 Please try again later", "5": "550 5.7.1 Not welcome here"}[kind]

    def read(value: object) -> str:
        if isinstance(value, str) and written.fullmatch(value):
            return value
        raise ValueError(
            f"{show(value)} is not a valid reply; allowed: a code {kind}xx, an enhanced code {kind}.x.x and one line "
            f"of printable ASCII, such as {example}"
        )

    return read


# Fields that may stand once, or that mail software writes: a second one would change what the message is.
RESERVED_FIELDS: Final = frozenset(
    {"from", "sender", "reply-to", "to", "cc", "bcc", "message-id", "in-reply-to", "references", "subject", "date"}
    | {"received", "return-path", "mime-version"}
    | {"dkim-signature", "arc-seal", "arc-message-signature", "arc-authentication-results"}
)


def _field_name(value: object) -> str:
    name = header_name(value)
    if name.lower() in RESERVED_FIELDS or name.lower().startswith(("content-", "resent-")):
        raise ValueError(f"{show(value)} is not ours to add; allowed: fields of your own, such as X-Tenant")
    return name


PLACEHOLDERS: Final = frozenset(
    {"client", "clientname", "listener", "helo", "user", "size", "score"}
    | {"sender", "senderdomain", "recipient", "recipientdomain"}
)
PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


def _template(value: object) -> str:
    if not isinstance(value, str) or not value or len(value) > 500 or not value.isprintable():  # noqa: PLR2004
        raise ValueError(
            f"{show(value)} is not usable here; allowed: one line of 1 to 500 printable characters{quotes_hint(value)}"
        )
    named = PLACEHOLDER.findall(value)
    unknown = [name for name in named if name not in PLACEHOLDERS]
    if unknown or set(PLACEHOLDER.sub("", value)) & set("{}"):
        words = ", ".join(sorted(PLACEHOLDERS))
        raise ValueError(f"{show(value)} has an unknown placeholder; allowed: in braces {words}")
    return value


_TEXT_SCHEMA: Final = {"type": "string"}
SOME: Final = Field(min_length=1)
Domain = Annotated[str, Checked(_domain, _TEXT_SCHEMA)]
Address = Annotated[str, Checked(_address, _TEXT_SCHEMA)]
Sender = Annotated[str, Checked(_sender, _TEXT_SCHEMA)]
Pattern = Annotated[str, Checked(_pattern, _TEXT_SCHEMA)]
Truth = Annotated[bool, Checked(_truth, {"type": "boolean"})]
SizeComparison = Annotated[
    Comparison, Checked(_comparison(parse_size, "a sign and a size, such as >1MiB"), _TEXT_SCHEMA)
]
CountComparison = Annotated[
    Comparison, Checked(_comparison(_count, "a sign and a whole number, such as >10"), _TEXT_SCHEMA)
]
ScoreComparison = Annotated[
    Comparison, Checked(_comparison(_number, "a sign and a number, such as >=7.5"), _TEXT_SCHEMA)
]
RateOver = Annotated[Over, Checked(_over, _TEXT_SCHEMA)]
DayHours = Annotated[Hours, Checked(_hours, _TEXT_SCHEMA)]
RejectReply = Annotated[str, Checked(_reply("5"), _TEXT_SCHEMA)]
DeferReply = Annotated[str, Checked(_reply("4"), _TEXT_SCHEMA)]
FieldName = Annotated[str, Checked(_field_name, _TEXT_SCHEMA)]
Template = Annotated[str, Checked(_template, _TEXT_SCHEMA)]
# Halon's own examples carry a colon: mailquarantine:release1.
QuarantineId = Annotated[
    str, matching(r"[A-Za-z0-9._:-]{1,64}", "1 to 64 of A-Z, a-z, 0-9, dot, underscore, colon and hyphen")
]
MetadataKey = Annotated[str, matching(r"[^_\0][^\0]*", "text that does not begin with an underscore")]
PartitionKey = Annotated[
    str,
    matching(
        r"recipientdomain|recipient|senderdomain|sender|user|header:[\x21-\x39\x3b-\x7e]{1,70}|metadata:[^_\0][^\0]{0,70}",
        "recipientdomain, recipient, senderdomain, sender, user, header:NAME or metadata:KEY",
    ),
]


def asks(text: str, *, unit: str, **more: Any) -> Any:
    """Declares a list a condition asks about; left out it asks nothing."""
    return Field(
        default_factory=list,
        validate_default=False,
        description=f"{text} List of {unit}, default none (not asked).",
        **more,
    )
