"""test_suspends — suspended mail waits, and is due at once after the end of any suspend

Owns: proofs about queued/pacing/suspends.py and the queries suspend_*.
"""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest

from queued.pacing import suspends
from queued.pacing.pace import Fields, Paces, Turn
from queued.waiting.deferral import Deferral
from shared.config.queued.pacing import Pacing
from shared.postgres import database as db
from tests.fixtures.database.asked import asking
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins
    from tests.fixtures.heard import Heard

MAIL = Fields("default", "example.com", "example.org", "acme", "news")


async def suspended(connection: db.Connection, seconds: float | None = None, **selection: list[str]) -> int:
    """A suspend by command; its number."""
    [row] = await db.fetch(
        connection,
        "suspend_add",
        selection=json.dumps(selection),
        reason="they asked",
        who="operator",
        seconds=seconds,
        now=None,
    )
    number: int = row.id
    return number


async def follow(paces: Paces, connection: db.Connection) -> None:
    """The work of a worker at every poll and at every notification."""
    await paces.suspends.follow(connection, "true")


def parked(
    factory: Factory, domain: str = "example.com", said: str | None = "waiting: suspended: they asked", tries: int = 0
) -> int:
    """A recipient that was parked for a suspend."""
    number = factory.row(domain=domain, due=timedelta(minutes=9), tries=tries)
    factory.sql("UPDATE pillarbox.queue SET last_error = %(said)s WHERE id = %(id)s", id=number, said=said)
    return number


def due(factory: Factory) -> set[int]:
    return {row.id for row in factory.sql("SELECT id FROM pillarbox.queue WHERE next_retry <= now()")}


async def test_workers_follow_the_table_of_suspends(connection: db.Connection) -> None:
    paces = Paces()
    assert isinstance(paces.ask(MAIL), Turn)
    await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    assert paces.ask(MAIL._replace(destination="Example.COM")) == Deferral(600.0, "suspended: they asked", stopped="us")
    assert isinstance(paces.ask(MAIL._replace(destination="example.net")), Turn)
    await db.fetch(connection, "suspend_remove", ids=None)
    await follow(paces, connection)
    assert isinstance(paces.ask(MAIL), Turn)


async def test_every_given_field_must_match(connection: db.Connection) -> None:
    paces = Paces()
    await suspended(connection, destination=[".example.com", "example.com"], tenant=["acme", "other"])
    await follow(paces, connection)
    assert isinstance(paces.ask(MAIL), Deferral)
    assert isinstance(paces.ask(MAIL._replace(destination="deep.example.com")), Deferral)
    assert isinstance(paces.ask(MAIL._replace(destination="notexample.com")), Turn)
    assert isinstance(paces.ask(MAIL._replace(tenant="third")), Turn)
    assert isinstance(paces.ask(MAIL._replace(tenant=None)), Turn)


async def test_a_suspend_expires(connection: db.Connection) -> None:
    now = 0.0
    paces = Paces(clock=lambda: now)
    await suspended(connection, 90.0, destination=["example.com"])
    await follow(paces, connection)
    asked = paces.ask(MAIL)
    assert isinstance(asked, Deferral)
    assert 30 < asked.seconds <= 90
    now = 91.0
    assert isinstance(paces.ask(MAIL), Turn)


async def test_a_suspend_by_a_rule_applies_at_once_here_and_soon_in_all_workers(connection: db.Connection) -> None:
    here, there = Paces(), Paces()
    here.suspend({"destination": ["example.com"]}, 300, "421 slow down", "rule slow")
    asked = here.ask(MAIL)
    assert isinstance(asked, Deferral)
    assert asked.reason == "suspended: 421 slow down"
    assert isinstance(there.ask(MAIL), Turn)
    await follow(here, connection)
    await follow(there, connection)
    assert isinstance(here.ask(MAIL), Deferral)
    assert isinstance(there.ask(MAIL), Deferral)
    [row] = await db.fetch(connection, "suspend_active", now=None)
    assert (row.selection, row.who) == ({"destination": ["example.com"]}, "rule slow")
    await db.fetch(connection, "suspend_remove", ids=[row.id])  # the operator knows better
    await follow(here, connection)
    assert isinstance(here.ask(MAIL), Turn)


async def test_a_rule_that_fires_again_extends_the_suspend(connection: db.Connection) -> None:
    paces = Paces()
    for seconds in (10, 300):
        paces.suspend({"destination": ["example.com"]}, seconds, "421", "rule slow")
        await follow(paces, connection)
    [row] = await db.fetch(connection, "suspend_active", now=None)
    assert 200 < row.seconds <= 300


async def test_thousands_of_suspends_by_rules_are_written_and_stay_in_force(connection: db.Connection) -> None:
    here, there = Paces(), Paces()
    for number in range(3000):
        here.suspend(
            {"transport": ["default"], "destination": [f"d{number}.example"]}, 300, "421 slow down", "rule slow"
        )
    await follow(here, connection)
    await follow(there, connection)
    for number in (0, 1, 1500, 2999):
        mail = MAIL._replace(destination=f"d{number}.example")
        assert isinstance(here.ask(mail), Deferral)
        assert isinstance(there.ask(mail), Deferral)
    assert len(await db.fetch(connection, "suspend_active", now=None)) == 3000


async def test_a_suspend_that_postgresql_refuses_keeps_no_other_out(connection: db.Connection, heard: Heard) -> None:
    paces = Paces()
    for domain, reason in (("example.com", "421 slow down"), ("example.net", ""), ("example.org", "421 slow down")):
        paces.suspend({"destination": [domain]}, 300, reason, "rule slow")
    await follow(paces, connection)
    written = await db.fetch(connection, "suspend_active", now=None)
    assert {row.selection["destination"][0] for row in written} == {"example.com", "example.org"}
    [failed] = heard.all("suspend.failed")
    assert "suspends_reason_check" in failed["error"]
    assert all(
        isinstance(paces.ask(MAIL._replace(destination=f"example.{top}")), Deferral) for top in ("com", "net", "org")
    )


async def test_mail_of_a_removed_suspend_is_due_at_once(connection: db.Connection, factory: Factory) -> None:
    paces = Paces()
    await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    mail = parked(factory)
    tried = parked(factory, said="451 later", tries=2)
    other = parked(factory, "example.net")
    scheduled = parked(factory, said=None)
    assert due(factory) == set()
    await db.fetch(connection, "suspend_remove", ids=None)
    await follow(paces, connection)
    assert due(factory) == {mail, tried}
    assert other not in due(factory)
    assert scheduled not in due(factory)


async def test_mail_of_a_suspend_that_a_failover_lost_is_due_though_another_has_its_number(
    connection: db.Connection, factory: Factory
) -> None:
    """A standby that lagged when it was promoted gives the number again."""
    paces = Paces()
    number = await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    mail = parked(factory)
    factory.sql("DELETE FROM pillarbox.suspends")
    factory.sql("SELECT setval(pg_get_serial_sequence('pillarbox.suspends', 'id'), %(number)s, false)", number=number)
    assert await suspended(connection, destination=["example.net"]) == number
    await follow(paces, connection)
    assert due(factory) == {mail}


@pytest.mark.parametrize(
    "names", [[".example.com"], ["EXAMPLE.com", "example.net"], [".example.com", "example.net"], [".Example.COM", "x"]]
)
async def test_the_mail_that_a_suspend_selected_is_due_and_no_other(
    connection: db.Connection, factory: Factory, names: list[str]
) -> None:
    domains = ("example.com", "deep.example.com", "notexample.com", "example.net", "deep.example.net")
    mail = {parked(factory, domain): domain for domain in domains}
    paces = Paces()
    await suspended(connection, destination=names)
    await follow(paces, connection)
    wanted = {id_ for id_, domain in mail.items() if isinstance(paces.ask(MAIL._replace(destination=domain)), Deferral)}
    await db.fetch(connection, "suspend_remove", ids=None)
    await follow(paces, connection)
    assert due(factory) == wanted


async def test_hundreds_of_suspends_are_lifted_by_few_statements(
    connection: db.Connection, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement reads all parked mail."""
    paces = Paces()
    for number in range(700):
        await suspended(connection, destination=[f"d{number}.example"])
    mail = {parked(factory, f"d{number}.example") for number in (0, 350, 699)}
    parked(factory, "d700.example")
    await follow(paces, connection)
    await db.fetch(connection, "suspend_remove", ids=None)
    asked = asking(monkeypatch)
    await follow(paces, connection)
    assert due(factory) == mail
    assert asked.count("suspend_release") == 2


async def test_mail_parked_late_by_another_worker_is_due_at_the_next_poll(
    connection: db.Connection, factory: Factory
) -> None:
    paces = Paces()
    await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    await db.fetch(connection, "suspend_remove", ids=None)
    await follow(paces, connection)
    late = parked(factory)
    await follow(paces, connection)
    assert due(factory) == {late}
    later = parked(factory)
    await follow(paces, connection)
    assert later not in due(factory)  # mail may no longer be parked for it


async def test_a_suspend_made_while_much_mail_is_made_due_is_known_before_all_of_it_is(
    connection: db.Connection, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspends, "_BATCH", 2)
    monkeypatch.setattr(suspends, "_PATIENCE", 0.0)
    paces = Paces()
    await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    mail = {parked(factory) for _ in range(5)}
    await db.fetch(connection, "suspend_remove", ids=None)
    await follow(paces, connection)
    assert len(due(factory)) == 2
    await suspended(connection, destination=["example.com"])
    await follow(paces, connection)
    assert isinstance(paces.ask(MAIL), Deferral)
    assert len(due(factory)) == 2
    await db.fetch(connection, "suspend_remove", ids=None)
    for _ in range(3):
        assert paces.suspends._changed.is_set()  # it looks again at once
        await follow(paces, connection)
    assert due(factory) == mail


async def test_a_suspend_removed_from_the_file_makes_its_mail_due(connection: db.Connection, factory: Factory) -> None:
    written = {"suspends": [{"match": {"destination": ["example.com"]}, "reason": "they asked"}]}
    paces = Paces(Pacing.model_validate(written))
    assert paces.ask(MAIL) == Deferral(600.0, "suspended: they asked", stopped="us")
    mail = parked(factory)
    paces.use(Pacing(), {})
    assert isinstance(paces.ask(MAIL), Turn)
    await follow(paces, connection)
    assert due(factory) == {mail}


async def test_what_is_forgotten_waits_for_no_row_that_a_worker_locks(
    connection: db.Connection, factory: Factory
) -> None:
    """A worker locks many in one statement, and might wait for one that is being forgotten."""
    numbers = [await suspended(connection, -60.0, destination=[f"d{number}.example"]) for number in range(3)]
    factory.sql("""INSERT INTO pillarbox.pace_shares (key, worker, slots, expires)
                   SELECT 'k' || n, 'w', 1, now() - interval '1 hour' FROM generate_series(0, 2) AS n""")
    with factory.another() as session:
        session.execute("SELECT FROM pillarbox.suspends WHERE id = %s FOR UPDATE", (numbers[1],))
        session.execute("SELECT FROM pillarbox.pace_shares WHERE key = 'k1' FOR UPDATE")
        async with asyncio.timeout(PATIENCE):
            await db.fetch(connection, "pace_forget")
        assert [row.id for row in factory.sql("SELECT id FROM pillarbox.suspends")] == [numbers[1]]
        assert [row.key for row in factory.sql("SELECT key FROM pillarbox.pace_shares")] == ["k1"]


async def test_every_change_is_announced_to_all(connection: db.Connection, database: str) -> None:
    listener = await db.connect(database, "listener")
    await listener.execute("LISTEN pillarbox")
    await suspended(connection, destination=["example.com"])
    await db.fetch(connection, "suspend_remove", ids=None)
    payloads = [notice.payload async for notice in listener.notifies(timeout=PATIENCE, stop_after=2)]
    assert payloads == ["suspends:", "suspends:"]
    await listener.close()


@pytest.mark.parametrize(
    ("wanted", "given", "fits"),
    [
        (None, "example.com", True),
        (["example.com"], "EXAMPLE.com", True),
        (["example.com"], "deep.example.com", False),
        ([".example.com"], "deep.example.com", True),
        ([".example.com"], "example.com", False),
        ([".example.com"], "notexample.com", False),
        (["a", "b"], "b", True),
        (["a"], None, False),
    ],
)
async def test_postgresql_and_workers_match_the_same_mail(
    connection: db.Connection, wanted: list[str] | None, given: str | None, *, fits: bool
) -> None:
    async with connection.cursor() as cursor:
        await cursor.execute(
            "SELECT pillarbox.suspend_fits(%s::jsonb, %s)", (json.dumps(wanted) if wanted else None, given)
        )
        [answer] = await cursor.fetchone() or [None]
    assert answer is fits or (answer is None and not fits)


@pytest.mark.parametrize(
    "values",
    [
        """'{"nonsense": ["x"]}', NULL""",
        """'{"destination": "example.com"}', NULL""",
        """'{"destination": [["example.com"]]}', NULL""",
        """'{"destination": [null]}', NULL""",
        """'{"tenant": {"a": "b"}}', NULL""",
        """'[]', NULL""",
        """'{}', 'infinity'""",
        """'{}', '-infinity'""",
        """'{}', '0044-03-15 BC'""",
    ],
)
async def test_a_suspend_that_no_worker_can_read_is_refused(
    factory: Factory, logins: Logins, connection: db.Connection, values: str
) -> None:
    """It ended every worker that read the table, and each one that was started next."""
    with logins.session("maintainer") as session:
        with pytest.raises(psycopg.errors.CheckViolation):
            session.execute(f"INSERT INTO suspends (selection, expires, reason) VALUES ({values}, 'x')".encode())  # noqa: S608 - from the list above
        session.execute(
            """INSERT INTO suspends (selection, reason) VALUES ('{"destination": ["example.com"], "jobid": []}', 'x')"""
        )
    paces = Paces()
    await follow(paces, connection)
    assert isinstance(paces.ask(MAIL), Deferral)


@pytest.mark.parametrize("when", ["infinity", "-infinity", "0044-03-15 BC"])
def test_a_schedule_whose_time_no_worker_can_read_is_refused(factory: Factory, logins: Logins, when: str) -> None:
    with logins.session("maintainer") as session, pytest.raises(psycopg.errors.CheckViolation, match="schedules_times"):
        session.execute(
            "INSERT INTO schedules (id, cron, sender, recipients, content, next_at)"
            " VALUES ('a', '0 9 * * *', '', '{r@example.com}', 'x', %s)",
            (when,),
        )
