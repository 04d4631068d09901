"""fields — the types of keys in our YAML, and their descriptions

Owns: the base of all sections, the checked types of their keys, the one way to declare a key; the test for an IP
    address.
Guarantees: sections are frozen and refuse keys they do not know; a value is never coerced between text, number
and truth; every default is given once, as one would write it in YAML, and goes through the same check as a
written value; every key's description ends with its unit and default.
Raises: ValueError inside pydantic, worded `VALUE is not WHAT; allowed: ...`; shared.config.errors adds the place.
See: RFC 1123 section 2.1 (host names), RFC 5321 sections 4.1.3 (address literals) and 4.5.3.1 (lengths)
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
)

from shared.config.units import DURATION_PATTERN, SIZE_PATTERN, format_size, parse_duration, parse_size
from shared.mail.domain import to_ascii
from shared.masking import show
from shared.url import parts_of

type Network = IPv4Network | IPv6Network
type JsonSchema = dict[str, Any]

HIGHEST_PORT: Final = 65535
HOST_PATTERN: Final = (
    r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?)*"
)
_HOST: Final = re.compile(HOST_PATTERN)
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/-]+")


class Section(BaseModel):
    """A mapping in the YAML whose keys we all know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class MisplacedError(ValueError):
    """Problems inside one value, each with the path below it, so that each is reported on its own line."""

    def __init__(self, problems: Sequence[tuple[tuple[str | int, ...], str]]) -> None:
        """`problems`: path below the value being checked, and what is wrong there."""
        super().__init__("; ".join(text for _, text in problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, eq=False)  # compared by identity: annotations must be hashable, schemas are not
class Checked:
    """A type's rule: the function that reads a written value, and its JSON Schema for editors."""

    read: Callable[[object], Any]
    schema: JsonSchema

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> Any:
        """Lets `read` decide alone, so that no second rule words the error."""
        return PlainValidator(self.read).__get_pydantic_core_schema__(source, handler)

    def __get_pydantic_json_schema__(self, core: object, handler: GetJsonSchemaHandler) -> JsonSchema:
        """The JSON Schema for editors."""
        return dict(self.schema)


def whole(least: int, most: int) -> Checked:
    """Whole numbers from `least` to `most`."""

    def read(value: object) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ValueError(f"{show(value)} is not a usable number; allowed: a whole number from {least} to {most}")

    return Checked(read, {"type": "integer", "minimum": least, "maximum": most})


def matching(pattern: str, allowed: str) -> Checked:
    """Text that matches `pattern` as a whole; `allowed` says the same in words."""
    compiled = re.compile(pattern)

    def read(value: object) -> str:
        if isinstance(value, str) and compiled.fullmatch(value):
            return value
        raise ValueError(f"{show(value)} is not usable here; allowed: {allowed}{quotes_hint(value)}")

    return Checked(read, {"type": "string", "pattern": f"^({pattern})$"})


HEADER_NAME: Final = r"[!-9;-~]{1,70}"  # RFC 5322 section 2.2


def header_name(value: object) -> str:
    """The name of a header field, as written; ValueError for anything else."""
    if not isinstance(value, str) or not re.fullmatch(HEADER_NAME, value):
        raise ValueError(
            f"{show(value)} is not a valid field name; allowed: 1 to 70 printable ASCII characters without a colon"
        )
    return value


def url_matching(pattern: str, allowed: str) -> Checked:
    """As `matching`, for a URL, whose host and port must be valid too."""
    plain = matching(pattern, allowed)

    def read(value: object) -> str:
        url: str = plain.read(value)
        if parts_of(url) is None:
            raise ValueError(f"{show(value)} is not usable here; allowed: {allowed}")
        return url

    return Checked(read, plain.schema)


def domain_matching(pattern: str, allowed: str) -> Checked:
    """As `matching`, for text that is or ends in a domain: read in the one spelling of shared/mail/domain.py.

    `pattern` is for that spelling; the JSON Schema has no pattern, because U-labels match none.
    """
    plain = matching(pattern, allowed)

    def read(value: object) -> str:
        if not isinstance(value, str) or value.isascii():
            return str(plain.read(value)).lower()
        try:
            return str(plain.read(to_ascii(value)))
        except ValueError:  # DomainRefused among them
            raise ValueError(f"{show(value)} is not usable here; allowed: {allowed}") from None

    return Checked(read, {"type": "string", "minLength": 1})


def quotes_hint(value: object) -> str:
    """What to do about a number or truth where text is wanted."""
    return " (in quotes)" if isinstance(value, int | float) else ""


def _span(value: object) -> timedelta:
    duration = parse_duration(value)
    if not duration:
        raise ValueError(f"{show(value)} is too short; allowed: a duration above zero")
    return duration


def _size(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        size = parse_size(value)
        if not least <= size <= most:
            allowed = f"from {format_size(least)} to {format_size(most)}"
            raise ValueError(f"{show(value)} is out of range; allowed: {allowed}")
        return size

    return read


def _fraction(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{show(value)} is not a fraction; allowed: a number from 0 to 1")


def _file(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if isinstance(value, str) and value and "\0" not in value:
        return Path(value)
    raise ValueError(f"{show(value)} is not a path; allowed: text naming a file or folder{quotes_hint(value)}")


def _network(value: object) -> Network:
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    if isinstance(value, str):
        try:
            return ip_network(value)
        except ValueError as error:
            # Alone this says which of the two everyday mistakes it is; the others are plain to see.
            why = ", its address has bits beyond the prefix" if "host bits" in str(error) else ""
            raise ValueError(
                f"{show(value)} is not a network{why}; allowed: an IPv4 or IPv6 network such as 192.0.2.0/24"
            ) from None
    raise ValueError(f"{show(value)} is not a network; allowed: text such as 192.0.2.0/24")


def is_address(text: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _host(value: object) -> str:
    if (
        isinstance(value, str)
        and len(value) <= 255  # noqa: PLR2004 - RFC 5321 section 4.5.3.1.2
        # All digits at the end would be an IPv4 address, and it is not one.
        and (is_address(value) or (_HOST.fullmatch(value) and not value.rpartition(".")[2].isdigit()))
    ):
        return value
    raise ValueError(f"{show(value)} is not a host; allowed: a host name, IPv4 or IPv6 address")


_DURATION_SCHEMA: Final[JsonSchema] = {
    "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "integer", "minimum": 0}]
}
_SIZE_SCHEMA: Final[JsonSchema] = {
    "anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 1}]
}

Duration = Annotated[timedelta, Checked(parse_duration, _DURATION_SCHEMA)]
Interval = Annotated[timedelta, Checked(_span, _DURATION_SCHEMA)]
Size = Annotated[int, Checked(_size(1, 2**50), _SIZE_SCHEMA)]
# PostgreSQL refuses a value of 1GiB, and a message grows a little on its way there.
MessageSize = Annotated[int, Checked(_size(1, 1000 * 2**20), _SIZE_SCHEMA)]
Fraction = Annotated[float, Checked(_fraction, {"type": "number", "minimum": 0, "maximum": 1})]
FilePath = Annotated[Path, Checked(_file, {"type": "string", "minLength": 1})]
IpNetwork = Annotated[Network, Checked(_network, {"type": "string"})]
Host = Annotated[str, Checked(_host, {"type": "string", "minLength": 1, "maxLength": 255})]
# Our own name goes unquoted into replies and Received lines.
HostName = Annotated[
    str,
    matching(
        rf"(?=.{{1,255}}$)({HOST_PATTERN}|\[[0-9.]+\]|\[IPv6:[0-9A-Fa-f:.]+\])",
        "a host name, or an address literal such as [192.0.2.1]",
    ),
]
Port = Annotated[int, whole(1, HIGHEST_PORT)]
Id = Annotated[
    str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "1 to 64 letters, digits, dots, underscores and hyphens")
]
Text = Annotated[str, matching(r"[^\0]+", "text that is not empty")]
_LABEL: Final = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DOMAIN: Final = rf"(?=.{{1,255}}$)\.?{_LABEL}(\.{_LABEL})*"
Domain = Annotated[str, domain_matching(_DOMAIN, "a domain, or .domain, which means every domain below that one")]
DomainOrLiteral = Annotated[
    str,
    domain_matching(
        rf"{_DOMAIN}|\[[^\s\[\]]{{1,253}}\]",
        "a domain, .domain, which means every domain below that one, or an address literal such as [192.0.2.1]",
    ),
    AfterValidator(to_ascii),  # a literal in one spelling
]


def unique_ids[Identified: Section](values: list[Identified]) -> list[Identified]:
    """`values` if their `id` tells them apart; raises MisplacedError naming each that repeats one."""
    seen: dict[object, int] = {}
    problems: list[tuple[tuple[str | int, ...], str]] = []
    for index, value in enumerate(values):
        name = getattr(value, "id")  # noqa: B009 - sections in general have no id, those in such lists do
        first = seen.setdefault(name, index)
        if first != index:
            problems.append(((index, "id"), f"{show(name)} is already taken by [{first}]; allowed: each id once"))
    if problems:
        raise MisplacedError(problems)
    return values


def _upper(unit: str) -> str:
    return unit[0].upper() + unit[1:]  # capitalize() would write "Ip address"


def setting(default: Any, text: str, *, unit: str, absent: str = "", **more: Any) -> Any:
    """Declares a key: its default as one writes it in YAML, one sentence, its unit, what leaving it out means."""
    shown = default if isinstance(default, str) and _PLAIN.fullmatch(default) else json.dumps(default)
    if isinstance(default, str) and default in {"true", "false", "null"}:
        shown = json.dumps(default)
    if default is None:
        shown = f"none ({absent})"
    return Field(default=default, description=f"{text} {_upper(unit)}, default {shown}.", **more)


def required(text: str, *, unit: str, **more: Any) -> Any:
    """Declares a key that has no default."""
    return Field(description=f"{text} {_upper(unit)}, required.", **more)


def section(kind: Callable[[], Any], text: str, **more: Any) -> Any:
    """Declares a section, whose keys have their own defaults."""
    return Field(default_factory=kind, description=text, **more)
