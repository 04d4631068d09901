"""source — the source addresses of a transport, in queued.yaml

Owns: the models of a source address, its name and weight, and of its warm-up.
Guarantees: an address occurs once in a transport; a socket can be bound to it and a peer can answer it; a day is a
    date of the calendar, in UTC. Whether this host has the address is not checked here: binding will show.
See: Postfix smtp_bind_address and smtp_bind_address6; KumoMTA egress_source; Halon's source addresses
"""

from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from shared.config.fields import (
    Checked,
    HostName,
    MisplacedError,
    Section,
    quotes_hint,
    required,
    setting,
    whole,
)
from shared.masking import show

_MOST_MESSAGES = 1_000_000_000


def _address(value: object) -> IPv4Address | IPv6Address:
    if isinstance(value, IPv4Address | IPv6Address):
        return value
    if isinstance(value, str):
        try:
            address = ip_address(value)
        except ValueError:
            pass
        else:
            if not address.is_multicast and not address.is_unspecified:
                return address
    raise ValueError(
        f"{show(value)} is not an address to speak from; allowed: an IPv4 or IPv6 address of this host, without port"
        f"{quotes_hint(value)}"
    )


def _day(value: object) -> date:
    if isinstance(value, date):
        return value
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise ValueError(f"{show(value)} is not a day; allowed: a date such as 2026-12-24{quotes_hint(value)}")


Day = Annotated[date, Checked(_day, {"type": "string", "format": "date"})]
SourceAddress = Annotated[IPv4Address | IPv6Address, Checked(_address, {"type": "string", "minLength": 1})]
DailyMessages = Annotated[int, whole(1, _MOST_MESSAGES)]


class Warmup(Section):
    """How many messages a new address sends on each of its first days."""

    begins: Day = required("The first day, in UTC; before it the address is not used.", unit="date", alias="from")
    days: Annotated[list[DailyMessages], Field(min_length=1)] = required(
        "The most messages on the first day, the second, and so on, for all workers together. After the last day "
        "there is no limit.",
        unit="list of numbers of messages",
    )


class Source(Section):
    """An address of this host that mail leaves from."""

    address: SourceAddress = required(
        "The source address (Postfix smtp_bind_address, KumoMTA source_address).", unit="IP address"
    )
    hostname: HostName | None = setting(
        None,
        "Our name in EHLO when this address is used (KumoMTA ehlo_domain).",
        unit="host name",
        absent="the transport's hostname",
    )
    weight: Annotated[int, whole(1, 65535)] = setting(
        1, "How often it is chosen, relative to the other sources (KumoMTA egress_pool weight).", unit="number"
    )
    warmup: Warmup | None = setting(
        None,
        "How much may be sent from it on its first days, until receivers know it.",
        unit="section of from and days",
        absent="no limit",
    )


def unique_addresses(sources: list[Source]) -> list[Source]:
    """`sources` if no address stands twice; else MisplacedError names each that repeats one."""
    seen: dict[object, int] = {}
    problems: list[tuple[tuple[str | int, ...], str]] = []
    for index, source in enumerate(sources):
        first = seen.setdefault(source.address, index)
        if first != index:
            text = f"{show(str(source.address))} is already taken by [{first}]; allowed: each address once"
            problems.append(((index, "address"), text))
    if problems:
        raise MisplacedError(problems)
    return sources


Sources = Annotated[list[Source], AfterValidator(unique_addresses)]
