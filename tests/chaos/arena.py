"""arena — the running system of a cell: PostgreSQL, daemons, sinks, applications and accounts

Owns: Arena, and its own record of mail in flight: the claims at the instant of a fault, compared with the sinks' mail,
    and the sinks' replies that never reached a worker.
Guarantees: each cell has its own database, on a server of this run that may be killed. Only processes started here
    are signalled, by id. Both workers serve every partition, so that each takes over from the other.
    This record does not use the history of attempts.
Raises: CannotRunError when a program or library that the cell needs is missing.
See: tests/fixtures/daemons/system.py (daemons), tests/fixtures/servers/killable.py (server),
    tests/fixtures/peers/proxy.py (network).
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg

from scripts.dev.peers import find_library, how_to_get
from scripts.sink.server import Sink
from shared.postgres.migrate import migrate
from tests.chaos.accounts import Accounts
from tests.chaos.applications.callers import Callers
from tests.chaos.applications.listener import listening
from tests.chaos.applications.sign_ups import SignUps, collectors
from tests.chaos.senders import Load
from tests.chaos.way_to_sink import WayToSink, leading_to
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.system import Daemon, System
from tests.fixtures.peers.proxy import Proxy, relaying
from tests.fixtures.servers.postgres import LEAVES, ServerUnderTest
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from scripts.sink.records import Received
    from tests.chaos.accounts import Arrival, Key
    from tests.chaos.applications.application import Application
    from tests.chaos.applications.listener import Listener
    from tests.chaos.cells import Cell
    from tests.fixtures.servers.killable import Killable

BOX: Final = "slow0.05"  # a peer so slow that some mail is always in flight
INFLIGHT: Final = 60  # recipients that one worker may have in flight
GRACE: Final = "1m"  # of the sweep
FAKETIME: Final = "libfaketime"
WORKERS: Final = ("first", "second")
#: The backends whose results wait for `results_held`.
RESULTS_WAIT: Final = """FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted
                         AND mode = 'RowExclusiveLock' AND relation = 'pillarbox.archive'::regclass"""
# Our senders retry without a pause while PostgreSQL is down; smtpd would delay its replies to them for longer than the
# measured recovery.
_PATIENT: Final = {"junkcommands": 1_000_000}
_TIMEOUTS: Final = dict.fromkeys(("connect", "greeting", "helo", "mail", "rcpt", "data", "body", "dot"), "2s")


class CannotRunError(Exception):
    """A program or library is missing; the text says how to install it. No promise is broken."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that has ended, with its time (monotonic). The mail in flight is in the accounts."""

    ended: float


class Arena:
    """The system that a strike breaks and queries."""

    def __init__(self, cell: Cell, server: Killable, uri: str, folder: Path, seed: int) -> None:
        self.cell = cell
        self.server = server
        self.uri = uri
        self.folder = folder
        self.chance = random.Random(seed)
        self.seed = seed
        self.system = System(uri, folder)
        self.accounts = Accounts()
        remembered = set[tuple[str, str]]()
        #: One for each worker, to show when everything that a dead one had sent has arrived.
        self.sinks = {
            name: Sink(keep_content=True, callback=self._receiver(name), greylisted=remembered) for name in WORKERS
        }
        self._arrivals: dict[str, list[list[Arrival]]] = {name: [] for name in WORKERS}
        self.gate = asyncio.Event()  # the sink replies to the final dot of mail from `gated` once this is set
        self.gate.set()
        self.gated: set[str] = set()
        self.mark = folder / "failed"
        self.clock = folder / "clock"
        self.load: Application
        self.fronts: tuple[Daemon, ...] = ()
        self.listener: Listener | None = None
        self.workers: tuple[Daemon, ...] = ()
        self.network: Proxy | None = None
        self.ways: dict[str, WayToSink] = {}

    def _receiver(self, worker: str) -> Callable[[Received], Awaitable[object] | None]:
        """The function called when this worker's sink has a message; the sink replies when it returns."""

        def received(record: Received) -> Awaitable[object] | None:
            self._arrivals[worker].append(self.accounts.arrive(record, monotonic()))
            return self.gate.wait() if record.sender in self.gated else None

        return received

    async def start(self, box: str = BOX) -> None:
        """Start the daemons, with the cell's failure point in their environment."""
        if self.cell.point:
            self.system.environment |= {"PILLARBOX_FAIL": self.cell.point, "PILLARBOX_FAIL_MARK": str(self.mark)}
        if self.cell.strike.startswith("clock"):
            self.system.environment |= self._own_clock()
        through: dict[str, Any] = {"database": {"uri": self.network.uri}} if self.network else {}
        ports = {name: (self.ways[name] if self.ways else self.sinks[name]).port for name in WORKERS}
        worker = partial(
            self.system.worker,
            environment=through,
            claim={"lease": f"{int(self.cell.lease * 1000)}ms", "inflight": INFLIGHT, "batch": INFLIGHT},
            transport={"timeout": _TIMEOUTS if self.ways else {}, "retry": {"intervals": ["300ms"], "jitter": 0}},
            maintenance={"grace": GRACE},
            webhooks=self.listener.section if self.listener else {},
        )
        workers = (worker(ports[name], name) for name in WORKERS)
        fronts = asyncio.create_task(self._fronts(through))
        self.workers = tuple(await asyncio.gather(*workers))
        self.fronts = await fronts
        if self.listener is not None:  # mail that arrives before there is an endpoint leaves no event of its arrival
            await self.until("SELECT count(*) > 0 FROM webhooks")
        self.load = await self._application(box)

    async def _fronts(self, through: dict[str, Any]) -> tuple[Daemon, ...]:
        """The daemons that take mail from the cell's kind of application."""
        spool, processes = {"timeout": "3s"}, self.cell.processes
        if self.cell.face == "http":
            return (await self.system.httpd(environment=through, processes=processes, smtpd={"spool": spool}),)
        if self.cell.face == "accounts":
            return await collectors(self.system)
        servers = [{"id": "mx", "hostname": "mx.test", "listeners": [{"port": 0}], "limits": _PATIENT}]
        return (await self.system.smtpd(environment=through, servers=servers, processes=processes, spool=spool),)

    async def _application(self, box: str) -> Application:
        """What submits; `box` ends each local part."""
        if self.cell.face == "http":
            key = await Api(self.system, self.fronts[0]).key("shop")
            return Callers(self.accounts, lambda: self.fronts[0].address, self.seed, key, box=box)
        if self.cell.face == "accounts":
            installation = await self.value("SELECT installation::text FROM accounts.account_settings")
            return SignUps(self.accounts, self.uri, installation, box=box)
        return Load(self.accounts, lambda: self.smtpd.address, self.seed, box=box)

    def _own_clock(self) -> dict[str, str]:
        """The daemons' wall clock is set by the file; the monotonic clock is not changed."""
        library = find_library(FAKETIME)
        if library is None:
            raise CannotRunError(how_to_get(FAKETIME))
        self.clock.write_text("+0")
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.clock),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    @property
    def smtpd(self) -> Daemon:
        """The only daemon that takes mail, where applications submit by SMTP."""
        [front] = self.fronts
        return front

    @property
    def daemons(self) -> tuple[Daemon, ...]:
        """All daemons."""
        return (*self.fronts, *self.workers)

    def ended(self) -> list[Daemon]:
        """The daemons whose process has ended."""
        return [daemon for daemon in self.daemons if not Path(f"/proc/{daemon.pid}").exists() or _state(daemon) == "Z"]

    def stopped(self) -> list[Daemon]:
        """The daemons stopped by SIGSTOP."""
        return [daemon for daemon in self.daemons if _state(daemon) == "T"]

    async def rows(self, sql: LiteralString, *values: object) -> list[tuple[Any, ...]]:
        """Query the database; retry if it was down."""
        while True:
            try:
                return await self.system.rows(sql, *values)
            except psycopg.OperationalError:
                await asyncio.sleep(0.05)

    async def value(self, sql: LiteralString, *values: object) -> Any:
        """The only value of a result."""
        [[found]] = await self.rows(sql, *values)
        return found

    async def until(self, sql: LiteralString, *values: object, limit: float = 60.0) -> None:
        """Wait until a result's only value is true."""

        async def holds() -> bool:
            return bool(await self.value(sql, *values))

        await eventually(holds, sql, limit=limit)

    async def claims(self, worker: str = "") -> set[Key]:
        """The recipients that a worker of this name, or any, has claimed now."""
        held: LiteralString = """SELECT senderlocalpart || '@' || senderdomain,
                                        recipientlocalpart || '@' || recipientdomain
                                   FROM queue WHERE token IS NOT NULL AND worker LIKE %s || '%%'"""
        return {(sender, recipient) for sender, recipient in await self.rows(held, worker and f"{worker}@")}

    async def died(self, *workers: str) -> None:
        """Record a dead worker's mail in flight, once everything it had sent has reached PostgreSQL and its sink."""
        gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pillarbox ' || %s"
        for worker in workers:
            await self.until(gone, worker)
            await self.sinks[worker].wait_until_empty()
            self.accounts.strike(await self.claims(worker))

    async def stopped_with(self, worker: str) -> set[Key]:
        """The claims of a stopped worker, once the last statement it sent has ended."""
        done = (
            "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pillarbox ' || %s AND state = 'active'"
        )
        await self.until(done, worker)
        return await self.claims(worker)

    def unanswered(self) -> None:
        """Record as in flight the mail that a sink accepted but whose reply was lost on the way."""
        for worker, way in self.ways.items():
            for number, arrivals in enumerate(self._arrivals[worker], 1):
                if number not in way.answered:
                    self.accounts.in_flight.update(arrivals)

    async def until_arrived(self, more: int, limit: float = 90.0) -> None:
        """Wait for this many more arrivals."""
        wanted = self.accounts.arrived + more
        await eventually(lambda: self.accounts.arrived >= wanted, f"{more} more arrivals", limit=limit)

    async def until_accepted(self, more: int, limit: float = 90.0) -> None:
        """Wait until this many more recipients are accepted."""
        wanted = self.accounts.accepted + more
        await eventually(lambda: self.accounts.accepted >= wanted, f"{more} more accepted", limit=limit)

    async def until_refused(self, more: int, limit: float = 60.0) -> None:
        """Wait until this many more recipients are refused; senders that are ahead of the sink go on too."""
        wanted = self.accounts.refusals + more
        self.load.pressing = True
        await eventually(lambda: self.accounts.refusals >= wanted, f"{more} more refused", limit=limit)
        self.load.pressing = False

    @asynccontextmanager
    async def results_held(self, worker: str = "") -> AsyncIterator[None]:
        """Lock the table of results; the block begins once a result of this worker, or of any, waits for the lock."""
        async with await psycopg.AsyncConnection.connect(self.uri) as locking:
            await locking.execute("LOCK TABLE pillarbox.archive IN EXCLUSIVE MODE")
            waits: LiteralString = f"SELECT count(*) > 0 {RESULTS_WAIT} AND application_name LIKE %s"
            await self.until(waits, f"pillarbox {worker}%")
            yield

    async def serving(self) -> None:
        """Start PostgreSQL again and wait until it answers."""
        await asyncio.to_thread(self.server.start)
        await self.value("SELECT 1")

    async def close(self) -> None:
        """Stop the daemons."""
        self.gate.set()
        await self.system.close()


def _state(daemon: Daemon) -> str:
    with suppress(OSError):
        return Path(f"/proc/{daemon.pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


@asynccontextmanager
async def arena(
    cell: Cell, server: Killable, folder: Path, seed: int, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Arena]:
    """An arena whose daemons are not started yet; `environment` is added to theirs."""
    found = ServerUnderTest(server.administrator, 0, "embedded")
    async with AsyncExitStack() as stack:
        name = await asyncio.to_thread(found.create_database)
        # Leftover files make the next recovery longer: PostgreSQL syncs every file before it starts.
        stack.callback(_drop, server, found, name)
        uri = found.uri_of(name)
        if cell.name != "migration":
            await asyncio.to_thread(migrate, uri, LEAVES)
        await asyncio.to_thread(folder.mkdir, parents=True)
        made = Arena(cell, server, uri, folder, seed)
        made.system.environment |= dict(environment or {})
        for sink in made.sinks.values():
            await stack.enter_async_context(sink)
        if cell.hooked:
            made.listener = await stack.enter_async_context(listening(folder))
        if cell.crosses:
            made.network = await stack.enter_async_context(relaying(uri))
            for worker, sink in made.sinks.items():
                made.ways[worker] = await stack.enter_async_context(leading_to(sink.port))
        stack.push_async_callback(made.close)
        yield made


def _drop(server: Killable, found: ServerUnderTest, name: str) -> None:
    server.start()
    found.drop_database(name)


def alive(pid: int) -> bool:
    """Whether a process with this id exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
