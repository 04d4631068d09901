"""sink — the sink that `pillarbox up --sink` runs as next hop while none is configured

Owns: whether it may run, and what is said of it.
Guarantees: it runs only where all mail is this host's own test mail, as far as can be known: every listener accepts
    from loopback only, PostgreSQL is on this host, and no mail waits from a time without a sink. Otherwise the
    reason is one line. Its mail is kept under `var`, bounded.
See: scripts/sink/store.py; shared/config/queued/next_hop.py.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

from scripts.sink.server import Sink
from scripts.sink.show import folder
from scripts.sink.store import Store
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from scripts.sink.records import Received
    from shared.config.smtpd.settings import Listener, SmtpdConfig


def from_elsewhere(smtpd: SmtpdConfig) -> str | None:
    """Why mail may come from other hosts: the first listener that accepts it; None when all are for this host only."""
    for index, server in enumerate(smtpd.servers):
        for number, listener in enumerate(server.listeners):
            if why := _opens(listener):
                return f"servers[{index}].listeners[{number}] of smtpd.yaml {why}"
    return None


def _opens(listener: Listener) -> str | None:
    if not is_loopback(listener.address):
        return f"accepts from other hosts: address {listener.address}; allowed with a sink: 127.0.0.1, ::1, localhost"
    if listener.proxy.networks or listener.xclient.networks:
        return "accepts for other hosts: proxy.networks or xclient.networks; allowed with a sink: neither"
    return None


def is_loopback(host: str) -> bool:
    """Whether this address, or name, is this host's loopback; of names only localhost is."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


async def why_not(connection: database.Connection, smtpd: SmtpdConfig, var: Path) -> str | None:
    """Why no sink may take this queue's mail; None when one may."""
    if why := from_elsewhere(smtpd):
        return why
    if not database.is_on_this_host(connection):
        return "the database is on another host, so its mail may come from other hosts"
    if not _mark(var).exists():
        [row] = await database.fetch(connection, "queue_any")
        if row.some:
            return (
                "the queue has mail from a time without a sink, and the sink would take it; to discard that mail, run "
                "`pillarbox queue delete --all`, and the next start has a sink"
            )
    return None


def warning(transports: Sequence[str], *, asked: bool, refused: str | None) -> str:
    """What is said loudly where no next hop is configured. asked: for a sink. refused: why there is none."""
    keys = ", ".join(f"connection.server of transport {transport}" for transport in transports)
    configured = f"no next hop is configured (queued.yaml: {keys})"
    if not asked:
        return f"{configured}: mail is tried at 127.0.0.1; --sink delivers it to a sink instead"
    if refused:
        return f"{configured}: mail is tried at 127.0.0.1; no sink is started, because {refused}"
    return f"{configured}: mail goes to a sink and not to its recipients; read it with pillarbox sink show"


def end(var: Path) -> None:
    """From now on mail has a next hop, or may come from elsewhere: a later sink may not take what waits by then."""
    _mark(var).unlink(missing_ok=True)


def _mark(var: Path) -> Path:
    """The file that is there as long as all mail that waits may go to a sink."""
    return folder(var) / "is-next-hop"


@asynccontextmanager
async def running(var: Path) -> AsyncIterator[str]:
    """HOST:PORT of a sink on a free port of loopback, which keeps its mail under `var`."""
    place = folder(var)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    _mark(var).touch()
    store = Store(place)

    def keep(record: Received) -> None:
        store.add(record)
        sink.received.clear()  # it is on disk

    sink = Sink(keep_content=True, callback=keep)
    sink.count = store.last
    async with sink:
        yield f"{sink.host}:{sink.port}"
