"""metrics — the section `metrics` of a daemon's configuration

Owns: the address at which a daemon answers Prometheus and checks of its health, and how often that may cost a query.
Guarantees: without `listen` nothing is opened and nothing is counted.
See: docs/how-to/observe/watch-with-prometheus.md; docs/reference/metrics.md
"""

import re
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from shared.config.fields import HIGHEST_PORT, HOST_PATTERN, Checked, Domain, Id, Interval, Section, setting
from shared.masking import show

_PATTERN: Final = rf"(?:{HOST_PATTERN}|\[[0-9A-Fa-f:.]+\]):[0-9]{{1,5}}"
_ADDRESS: Final = re.compile(_PATTERN)


class ListenAddress(NamedTuple):
    """A host, without the brackets an IPv6 address is written in, and a TCP port; 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        """As one writes it in YAML."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _listen(value: object) -> ListenAddress:
    if isinstance(value, ListenAddress):
        return value
    if isinstance(value, str) and _ADDRESS.fullmatch(value):
        host, _, port = value.rpartition(":")
        if int(port) <= HIGHEST_PORT:
            return ListenAddress(host.strip("[]"), int(port))
    raise ValueError(f"{show(value)} is not a place to listen; allowed: HOST:PORT such as 127.0.0.1:9464 or [::1]:9464")


Listen = Annotated[ListenAddress, Checked(_listen, {"type": "string", "pattern": f"^({_PATTERN})$"})]


class SmtpdMetrics(Section):
    """The address at which smtpd answers Prometheus and checks of its health."""

    listen: Listen | None = setting(
        None,
        "The address of /metrics, /healthy and /ready, for all processes together.",
        unit="host and port",
        absent="off",
    )
    timeout: Interval = setting(
        "1s",
        "How long a scrape waits for the counts of each process; for a late process its last report is used.",
        unit="duration",
    )


class Metrics(Section):
    """The address at which a worker answers Prometheus and checks of its health."""

    listen: Listen | None = setting(
        None,
        "The address of /metrics, /healthy and /ready. The second worker in the list of workers uses the next port, "
        "and so on, so that one file serves all workers of a host.",
        unit="host and port",
        absent="off",
    )
    refresh: Interval = setting(
        "15s",
        "How often scrapes may query PostgreSQL for what is queued; in between, they get the last answer.",
        unit="duration",
    )
    destinations: dict[Id, Annotated[list[Domain], Field(min_length=1)]] = setting(
        {},
        "Classes of destinations by which tries are counted, such as one for each large provider: a name and its "
        "recipient domains; .example.com is every domain below example.com. All other domains count as other.",
        unit="lists of domains by class",
    )
