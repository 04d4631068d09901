"""test_daemons — the register of daemons: what each process writes into it, and what doctor reads from it

See: shared/postgres/presence.py; sql/schema/13_register.sql; operate/doctor/daemons.py.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from operate.doctor.checks import Severity
from shared.observe import events
from shared.postgres import presence
from shared.postgres.presence import Identity, InHand, Presence
from shared.version import version
from tests.fixtures.waiting import eventually, in_background

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.examined import Patient
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

ME = Identity("mine", "host", 7, "abc")
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten beats a second."""
    monkeypatch.setattr(presence, "BEAT", timedelta(seconds=0.1))


@asynccontextmanager
async def running(uri: str, kind: str = "queued", *busy: InHand) -> AsyncIterator[Presence]:
    """A process that is in the register as long as the block."""
    found = Presence(uri, kind, ME, lambda: busy)
    async with in_background(found.run()):
        yield found


def entries(factory: Factory) -> list[Any]:
    return factory.sql("SELECT * FROM pillarbox.daemons_seen ORDER BY daemon")


async def entered(factory: Factory) -> Any:
    await eventually(lambda: entries(factory), "the process is in the register")
    [entry] = entries(factory)
    return entry


async def test_a_process_registers_what_it_is_and_what_it_does(database: str, factory: Factory) -> None:
    async with running(database, "queued", InHand("mx.example", 3, 0, 12), InHand("b.example", 1, 20, 0)) as mine:
        first = await entered(factory)
        assert (first.daemon, first.kind, first.id, first.host, first.pid) == (str(ME), "queued", "mine", "host", 7)
        assert first.version == version()
        assert first.live
        assert [first.destinations, first.attempts, first.allowed, first.waiting] == [
            ["mx.example", "b.example"],
            [3, 1],
            [0, 20],
            [12, 0],
        ]
        events.emit("result.delivered", id=1)
        events.emit("spool.committed", id="1", recipients=5, size=1)
        await eventually(lambda: entries(factory)[0].delivered == [1, 1, 1], "it reports what it delivered")
        assert entries(factory)[0].accepted == [5, 5, 5]
        assert entries(factory)[0].started == first.started
        await mine.leave()
        assert entries(factory) == []
        await mine._attempt(mine._beat)
        assert entries(factory) == [], "it stays away"


KINDS = {"smtpd": "smtpd", "queued": "queued", "agent": "httpd", "application": "collect"}


@pytest.mark.parametrize("role", KINDS)
async def test_each_daemon_may_register_as_what_it_is(factory: Factory, logins: Logins, role: str) -> None:
    login = logins.uri(role)
    async with running(login, KINDS[role]) as mine:
        await entered(factory)
        await mine.leave()
    assert entries(factory) == []
    refusals = list[str]()
    with events.watched({"register.failed": [lambda fields: refusals.append(str(fields["error"]))]}):
        for kind in set(KINDS.values()) - {KINDS[role], "collect"}:
            refusals.clear()
            async with running(login, kind):
                await eventually(lambda: refusals, "the register refuses it")
            assert f"lacks the rights of {kind}" in refusals[0]
    assert entries(factory) == []


async def test_a_login_changes_only_the_rows_that_it_wrote(database: str, factory: Factory, logins: Logins) -> None:
    async with running(database):
        first = await entered(factory)
        with logins.session("application") as session:
            session.execute("SELECT pillarbox.daemon_leave(%s)", [str(ME)])
            session.execute(
                """SELECT pillarbox.daemon_beat(%s, 'collect', 'x', '0', 'h', 1, NULL, '1 s', '{0,0,0}', '{0,0,0}',
                                                '{0,0,0}', '{9,9,9}', '{}', '{}', '{}', '{}')""",
                [str(ME)],
            )
            for statement in ("SELECT FROM pillarbox.daemons", "DELETE FROM pillarbox.daemons"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    session.execute(statement.encode())
        [left] = entries(factory)
        assert (left.kind, left.failed, left.started) == ("queued", [0, 0, 0], first.started)


async def test_a_login_has_at_most_five_hundred_rows(factory: Factory, logins: Logins) -> None:
    with logins.session("application") as session:
        for number in range(504):
            session.execute(
                """SELECT pillarbox.daemon_beat(%s, 'collect', 'x', '0', 'h', 1, NULL, '1 s', '{0,0,0}', '{0,0,0}',
                                                '{0,0,0}', '{0,0,0}', '{}', '{}', '{}', '{}')""",
                [f"x-{number:03}"],
            )
    assert 500 <= len(entries(factory)) <= 501
    assert factory.one("SELECT min(daemon) FROM pillarbox.daemons") >= "x-003"


async def test_a_lost_connection_is_logged_once_and_is_only_a_missed_beat(
    database: str, factory: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(database) as mine:
        first = await entered(factory)
        factory.sql("ALTER TABLE pillarbox.daemons RENAME TO daemons_away")
        await eventually(lambda: "register.failed" in caplog.text, "the missed beat is logged")
        for _ in range(3):
            await mine._attempt(mine._beat)
        assert caplog.text.count("register.failed") == 1
        factory.sql("ALTER TABLE pillarbox.daemons_away RENAME TO daemons")
        factory.terminate("pillarbox queued register")
        await eventually(lambda: entries(factory)[0].seen > first.seen, "it beats again")


async def test_all_four_daemons_are_registered_while_they_run(system: System) -> None:
    daemons = [await system.smtpd(processes=2), await system.httpd(), await system.worker(9, "mine")]
    await system.until(
        """SELECT array_agg(kind || ' ' || n ORDER BY kind) = ARRAY['httpd 1', 'queued 1', 'smtpd 2']
             FROM (SELECT kind, count(*) AS n FROM daemons_seen WHERE live GROUP BY 1) AS k"""
    )
    for each in daemons:
        assert await each.stop() == 0
    assert await system.value("SELECT count(*) FROM daemons") == 0


def plant(
    patient: Patient, daemon: str, kind: str, *, of: str = "1.0", silent: timedelta = timedelta(), ran: timedelta = DAY
) -> None:
    """Write a row. of: its version; ran: since when it runs, or ran."""
    patient.factory.sql(
        """INSERT INTO pillarbox.daemons
           VALUES (%(daemon)s, %(kind)s, %(kind)s, %(of)s, 'host', 1, session_user, now() - %(ran)s,
                   now() - %(silent)s, '1 min', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{0,0,0}', '{}', '{}', '{}', '{}')""",
        daemon=daemon,
        kind=kind,
        of=of,
        silent=silent,
        ran=ran,
    )


async def test_doctor_reports_a_daemon_that_fell_silent_unless_another_has_started_since(patient: Patient) -> None:
    assert (await patient.worst("daemon.live")).verdict is Severity.OK
    plant(patient, "smtpd@host:1-a", "smtpd", silent=timedelta(hours=2))
    finding = await patient.worst("daemon.live")
    assert finding.verdict is Severity.WARN
    assert "smtpd@host:1-a has been silent for 2h" in finding.found
    plant(patient, "smtpd@host:3-c", "smtpd", ran=timedelta(hours=3))
    assert "smtpd@host:1-a" in (await patient.worst("daemon.live")).found, "it ran beside the other"
    patient.factory.sql("DELETE FROM pillarbox.daemons WHERE daemon = 'smtpd@host:3-c'")
    plant(patient, "smtpd@host:2-b", "smtpd", ran=timedelta(hours=1))
    finding = await patient.worst("daemon.live")
    assert (finding.verdict, finding.found) == (Severity.OK, "smtpd@host:2-b")


async def test_doctor_reports_daemons_of_several_versions(patient: Patient) -> None:
    plant(patient, "smtpd@host:1-a", "smtpd", of="1.0")
    plant(patient, "smtpd@host:2-b", "smtpd", of="0.9", silent=timedelta(hours=2))
    assert (await patient.worst("daemon.versions")).verdict is Severity.OK, "one that does not run is not of a version"
    plant(patient, "httpd@host:3-c", "httpd", of="1.1")
    finding = await patient.worst("daemon.versions")
    assert finding.verdict is Severity.WARN
    assert finding.found == "1.0: smtpd@host:1-a; 1.1: httpd@host:3-c"
