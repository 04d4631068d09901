"""source — chooses the address of ours that an attempt connects from

Owns: drawing sources by weight, matching sources to hosts, and the allowance of a source under warm-up for a day.
Guarantees: pure. Every source is drawn sooner or later in proportion to its weight. The first day of a warm-up is the
    configured day, in UTC; before it nothing is sent, after the last day there is no limit.
See: docs/how-to/deliver/several-source-addresses.md; KumoMTA egress_pool; Postfix smtp_bind_address
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date
    from random import Random

    from shared.config.queued.source import Source


def draw(sources: Iterable[Source], random: Random) -> list[Source]:
    """All sources, in an order of chance: each first in proportion to its weight, and so on among those left."""
    # Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): u ** (1 / w), largest first.
    return sorted(sources, key=lambda source: -(random.random() ** (1 / source.weight)))


def family(host: str) -> int | None:
    """4 or 6 for an address; None for a name, of which the system decides when it connects."""
    try:
        return ip_address(host).version
    except ValueError:
        return None


def fits(source: Source, version: int | None) -> bool:
    """Whether a host of this family can be reached from the source; a name may have addresses of either."""
    return version is None or source.address.version == version


def allowance(source: Source, day: date) -> int | None:
    """How many messages the source may send on this day; None without limit."""
    if source.warmup is None:
        return None
    number = (day - source.warmup.begins).days
    if number < 0:
        return 0
    return source.warmup.days[number] if number < len(source.warmup.days) else None


def usable(sources: Sequence[Source], hosts: Iterable[str], day: date) -> tuple[list[Source], str | None]:
    """The sources from which mail may leave to any of these hosts on this day, and why there is none to choose from."""
    if not sources:
        return [], "the system chooses"
    versions = {family(host) for host in hosts}
    fitting = [source for source in sources if any(fits(source, version) for version in versions)]
    if not fitting:
        wanted = " or ".join(f"IPv{version}" for version in sorted(filter(None, versions)))
        return [], f"none for {wanted}" if wanted else "none, because there is no host"
    allowed = [source for source in fitting if allowance(source, day) != 0]
    return allowed, None if allowed else "none today: the warm-up has not begun"


def until_tomorrow(now: datetime) -> float:
    """Seconds until the next day begins in UTC, never none."""
    utc = now.astimezone(UTC)
    midnight = datetime.combine(utc.date() + timedelta(days=1), time(), UTC)
    return max(1.0, (midnight - utc).total_seconds())
