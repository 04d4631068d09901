"""command — `pillarbox status`: the whole system on one screen

Owns: the choice of figures, the screen and its JSON: daemons, mail in and out in the last minutes, the queue by state,
    what is oldest, and the trouble that doctor finds in the database.
Guarantees: reads only, and only so much however long the queue is: figures that reach a bound say so. Exit status 1 if,
    and only if, there is an alarm, as with doctor.
Raises: DatabaseUnavailable; PillarboxError for errors that an operator can correct.
See: scripts/doctor/ for everything that is examined.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from operate import now
from operate.doctor.checks import Severity, span, worst
from operate.doctor.examine import Look
from operate.shapes.checks import DaemonSeen
from scripts.config_files import load_both
from scripts.options import finish
from scripts.output import records, table
from scripts.output.table import Column, Table, time
from shared.errors import DatabaseUnavailable, SchemaMismatch
from shared.how_many import how_many
from shared.postgres import database
from shared.version import version

if TYPE_CHECKING:
    import argparse
    from datetime import datetime

    from operate.doctor.checks import Finding
    from operate.now import Flow
    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig

_NEWEST: Final = 200_000  # ids that are read for the flow
_QUEUED: Final = 1_000_000  # recipients that are counted by state
_PATIENCE: Final = 2.0  # seconds for a listener of this host
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - where a listener on every address is reached
_TROUBLE: Final = 8  # findings that are shown
_STATES: Final = ("ACTIVE", "SENDING", "DEFER", "SCHEDULED", "HOLD", "DELETE", "BOUNCE")


class Figures(NamedTuple):
    """What the screen shows."""

    now: datetime
    server: str
    listeners: dict[str, bool]  # smtpd's addresses, and whether a connection is accepted there
    daemons: list[database.Row]
    workers: list[database.Row]
    flow: dict[str, Flow]
    states: list[database.Row]
    findings: list[Finding]

    @property
    def trouble(self) -> list[Finding]:
        """Warnings and alarms, the gravest first."""
        found = [each for each in self.findings if each.verdict >= Severity.WARN]
        return sorted(found, key=lambda each: -each.verdict)

    @property
    def counted(self) -> int:
        """Recipients that were counted by state."""
        return sum(row.recipients for row in self.states)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `status` to the command line."""
    finish(subparsers.add_parser("status", help="daemons, flow, queue and trouble on one screen"), run)


def run(options: argparse.Namespace) -> int:
    """Print the screen; 1 when there is an alarm."""
    smtpd, queued = load_both(options.config)
    figures = asyncio.run(_look(smtpd, queued))
    if options.json:
        records.one(_document(figures))
    else:
        _show(figures)
    return 1 if worst(figures.findings) is Severity.ALARM else 0


async def _look(smtpd: SmtpdConfig, queued: QueuedConfig) -> Figures:
    place = smtpd.environment
    conninfo = database.resolve_running(place.database.uri, place.var)
    if conninfo is None:
        raise DatabaseUnavailable(
            f"no PostgreSQL runs under {place.var}: start it with `pillarbox up` or `pillarbox database start`"
        )
    connection = await database.connect(conninfo, "pillarbox status")
    try:
        with database.outage_in_one_line(connection):
            findings = await Look(connection, smtpd, queued).examine()
            if any(each.check == "schema.version" and each.verdict is Severity.ALARM for each in findings):
                [finding] = [each for each in findings if each.check == "schema.version"]
                raise SchemaMismatch(finding.found)
            [clock] = await database.fetch(connection, "doctor_clock")
            [server] = await database.fetch(connection, "doctor_server")
            daemons = await database.fetch(connection, "daemon_seen")
            return Figures(
                clock.at,
                server.version,
                await _listeners(smtpd),
                daemons,
                await database.fetch(connection, "register_seen"),
                await now.flow(connection, daemons, _NEWEST),
                await database.fetch(connection, "status_states", most=_QUEUED),
                findings,
            )
    finally:
        await connection.close()


async def _listeners(smtpd: SmtpdConfig) -> dict[str, bool]:
    """Each address that smtpd.yaml names, as seen from this host; nothing is said there."""
    places = [(each.address, each.port) for server in smtpd.servers for each in server.listeners if each.port]
    found = await asyncio.gather(*(_accepts(_ANY.get(address, address), port) for address, port in places))
    return {f"{address}:{port}": accepts for (address, port), accepts in zip(places, found, strict=True)}


async def _accepts(host: str, port: int) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def _show(figures: Figures) -> None:
    print(f"pillarbox {version()}, PostgreSQL {figures.server}, {time(figures.now, brief=False)}\n")
    brief = table.terminal_width() is not None
    daemons: list[tuple[object, ...]] = [
        ("smtpd", f"at {where}", "accepts connections" if accepts else "does not answer on this host")
        for where, accepts in figures.listeners.items()
    ]
    for row in figures.daemons:
        state = f"alive since {time(row.started, brief=brief)}" if row.live else f"silent for {span(row.silent)}"
        daemons.append((row.id, f"on {row.host}", f"{row.version}, {state}"))
    if not any(row.kind == "queued" for row in figures.daemons):
        daemons.append(("queued", "-", "no worker has signed on"))
    Table((Column("daemon", least=12, whole=True), Column("where"), Column("state", wraps=True))).print(daemons)

    print()
    numbers = (Column(name, right=True) for name in ("1 min", "5 min", "15 min"))
    Table((Column("recipients"), *numbers)).print(
        (name, each.one, each.five, f"{'at least ' if each.more else ''}{each.fifteen}")
        for name, each in figures.flow.items()
    )

    print()
    states = {row.state: row for row in figures.states}
    least = "at least " if figures.counted == _QUEUED else ""
    print(f"queue: {least}{how_many(figures.counted, 'recipient')}")
    Table((Column("state"), Column("recipients", right=True), Column("oldest"))).print(
        (state, states[state].recipients, f"{span(figures.now - states[state].oldest)} ago")
        for state in _STATES
        if state in states
    )

    print()
    Table((Column("trouble"), Column("check"), Column("found", wraps=True))).print(
        (finding.verdict.name.lower(), finding.check, finding.found) for finding in figures.trouble[:_TROUBLE]
    )
    rest = len(figures.trouble) - _TROUBLE
    print(
        "no trouble in the database; `pillarbox doctor` looks further"
        if not figures.trouble
        else f"{f'and {rest} more; ' if rest > 0 else ''}what to do: pillarbox doctor"
    )


def _document(figures: Figures) -> dict[str, Any]:
    return {
        "version": version(),
        "server": figures.server,
        "now": figures.now,
        "listeners": [{"address": where, "accepts": accepts} for where, accepts in figures.listeners.items()],
        "daemons": [{name: getattr(row, name) for name in DaemonSeen.model_fields} for row in figures.daemons],
        "workers": [
            {
                **{name: getattr(row, name) for name in ("worker", "id", "host", "pid", "live", "started", "seen")},
                "where": row.where_condition,
            }
            for row in figures.workers
        ],
        "accepted": figures.flow["accepted"]._asdict(),
        "attempts": {name: each._asdict() for name, each in figures.flow.items() if name != "accepted"},
        "states": {row.state: {"recipients": row.recipients, "oldest": row.oldest} for row in figures.states},
        "complete": figures.counted < _QUEUED,
        "trouble": [
            {"check": f.check, "verdict": f.verdict.name.lower(), "found": f.found, "remedy": f.remedy}
            for f in figures.trouble
        ],
    }
