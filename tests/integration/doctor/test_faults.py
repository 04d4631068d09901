"""test_faults — doctor names each fault planted in the tables or the server

Owns: leaves, counts, history, mail, schema and server; workers and partitions are in test_workers.py.
See: operate/doctor/checks.py for the checks.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from time import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest

from operate.doctor import server
from operate.doctor.checks import Severity
from shared.how_many import how_many
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.database.examined import Patient
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.servers.postgres import ServerUnderTest

OK, NOTE, WARN, ALARM = Severity.OK, Severity.NOTE, Severity.WARN, Severity.ALARM
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def test_a_healthy_queue_has_no_warning(patient: Patient) -> None:
    patient.factory.rows(3, partid="1")
    patient.factory.rows(2, partid="4", status="HOLD")
    patient.factory.row(partid="5", due=HOUR)
    assert [f for f in await patient.findings() if f.verdict >= WARN] == []


@pytest.mark.parametrize(
    ("check", "verdict", "expected", "fault"),
    [
        ("leaf.triggers", ALARM, "queue_def_123: queue_left", "DROP TRIGGER queue_left ON pillarbox.queue_def_123"),
        (
            "leaf.triggers",
            ALARM,
            "queue_hold: queue_arrived",
            "ALTER TABLE pillarbox.queue_hold DISABLE TRIGGER queue_arrived",
        ),
        ("leaf.triggers", ALARM, "queue_truncated", "DROP TRIGGER queue_truncated ON pillarbox.queue"),
        ("leaf.triggers", ALARM, "queue_status", "DROP TRIGGER queue_status ON pillarbox.queue"),
        (
            "leaf.unique",
            ALARM,
            "queue_def_456",
            "ALTER TABLE pillarbox.queue_def_456 DROP CONSTRAINT queue_def_456_id_key",
        ),
        ("leaf.indexes", ALARM, "queue_due_bulk", "DROP INDEX pillarbox.queue_due_bulk"),
        ("leaf.indexes", ALARM, "queue_hold: queue_hold_ts", "DROP INDEX pillarbox.queue_hold_ts"),
        ("leaf.storage", WARN, "queue_def_123: fillfactor", "ALTER TABLE pillarbox.queue_def_123 RESET (fillfactor)"),
        ("leaf.storage", WARN, "disabled", "ALTER TABLE pillarbox.queue_hold SET (autovacuum_enabled = off)"),
        ("schema.version", ALARM, "missing", "DELETE FROM pillarbox.migrations"),
        ("schema.version", ALARM, "newer", "INSERT INTO pillarbox.migrations (number, name) VALUES (9999, 'x')"),
        (
            "schema.version",
            ALARM,
            "before 0.1.0",
            "UPDATE pillarbox.migrations SET name = '0001_pre_tables' WHERE number = 1",
        ),
        ("schema.version", ALARM, "missing", "DROP SCHEMA pillarbox CASCADE"),
        ("schema.partitions", WARN, "7 ids", "UPDATE pillarbox.settings SET partitions = 7"),
        ("schema.reviewers", WARN, "legal", """UPDATE pillarbox.settings SET reviewers = '{"legal": ["ann"]}'"""),
        ("leaf.triggers", ALARM, "queue_hold: queue_hold_d", "DROP TRIGGER queue_hold_deleted ON pillarbox.queue_hold"),
    ],
)
async def test_a_damaged_schema_is_reported(
    patient: Patient, check: str, verdict: Severity, expected: str, fault: str
) -> None:
    patient.factory.sql(fault)
    finding = await patient.worst(check)
    assert finding.verdict is verdict
    assert expected in finding.found


async def test_a_leaf_created_by_hand_lacks_triggers_indexes_and_storage_parameters(patient: Patient) -> None:
    patient.factory.sql("CREATE TABLE pillarbox.queue_def_9 PARTITION OF pillarbox.queue_def FOR VALUES IN ('9')")
    for check in ("leaf.triggers", "leaf.unique", "leaf.storage"):
        assert "queue_def_9" in (await patient.worst(check)).found


async def test_an_invalid_index_is_reported(patient: Patient, superuser: Factory) -> None:
    superuser.sql(
        """UPDATE pg_index SET indisvalid = false
            WHERE indexrelid = 'pillarbox.queue_def_123_next_retry_id_idx'::regclass"""
    )
    finding = await patient.worst("leaf.indexes")
    assert finding.verdict is ALARM
    assert "queue_def_123" in finding.found


async def test_dead_rows_without_vacuum_are_reported(patient: Patient) -> None:
    patient.factory.sql("ALTER TABLE pillarbox.queue_def_123 SET (autovacuum_enabled = off)")
    ids = patient.factory.rows(50, partid="1")
    for _ in range(2):
        patient.factory.lease(ids, ends=HOUR)
    patient.factory.sql("SELECT pg_stat_force_next_flush()")

    async def reported() -> bool:
        finding = await patient.worst("leaf.bloat", dead=50)
        return finding.verdict is WARN and "queue_def_123" in finding.found

    await eventually(reported, "doctor sees 50 dead rows")
    assert (await patient.worst("leaf.bloat")).verdict is OK


@pytest.mark.parametrize(("days", "verdict"), [(0, ALARM), (1, ALARM), (3, WARN), (5, OK)])
async def test_a_missing_day_partition_is_reported(patient: Patient, days: int, verdict: Severity) -> None:
    day = patient.factory.one(
        "SELECT 'attempts_' || to_char((now() AT TIME ZONE 'UTC')::date + %(days)s, 'YYYYMMDD')", days=days
    )
    patient.factory.on(day, "DROP TABLE {table}")
    finding = await patient.worst("history.days")
    assert finding.verdict is verdict
    assert (day in finding.found) is (verdict is not OK)


@pytest.mark.parametrize("count", [1, 30])
async def test_a_wrong_refcount_is_reported(patient: Patient, count: int) -> None:
    for _ in range(count):
        patient.factory.row()
    assert (await patient.worst("refcount.drift", sample=100)).found == f"{how_many(count, 'message')} looked at"
    patient.factory.sql(
        """UPDATE pillarbox.refcounts SET refcount = 5
            WHERE messages__id IN (SELECT id FROM pillarbox.messages ORDER BY id DESC LIMIT 1)"""
    )
    finding = await patient.worst("refcount.drift", sample=100)
    assert finding.verdict is ALARM
    assert "says 5 has 1" in finding.found
    patient.factory.sql("SELECT pillarbox.refcount_anew(ARRAY(SELECT id FROM pillarbox.messages))")
    assert (await patient.worst("refcount.drift", sample=100)).verdict is OK


async def test_a_body_without_recipients_is_reported(patient: Patient) -> None:
    """No sweep would find it; a young one may wait for its first commit."""
    message = patient.factory.message()
    assert (await patient.worst("refcount.drift")).verdict is OK
    patient.factory.sql("UPDATE pillarbox.messages SET ts = now() - interval '2 hours'")
    assert (await patient.worst("refcount.drift")).verdict is ALARM
    patient.factory.sql("SELECT pillarbox.refcount_anew(ARRAY[%(id)s]::uuid[])", id=message)
    assert (await patient.worst("refcount.drift")).verdict is OK


async def test_a_missing_body_is_reported(patient: Patient) -> None:
    ids = patient.factory.rows(2)
    patient.factory.sql("DELETE FROM pillarbox.messages")
    finding = await patient.worst("refcount.body")
    assert finding.verdict is ALARM
    assert f"2 of 2 rows, among them id {ids[0]}" in finding.found


@pytest.mark.parametrize(
    ("due", "verdict"), [(-timedelta(minutes=11), WARN), (-2 * HOUR, ALARM), (-timedelta(minutes=9), OK)]
)
async def test_overdue_mail_is_reported_by_partition(patient: Patient, due: timedelta, verdict: Severity) -> None:
    patient.factory.rows(3, partid="5", due=due)
    patient.factory.rows(3, partid="1")
    finding = await patient.worst("mail.overdue")
    assert finding.verdict is verdict
    assert ("partition 5: 3 wait" in finding.found) is (verdict is not OK)
    assert "partition 1" not in finding.found


async def test_a_bulk_or_urgent_message_can_be_overdue_too(patient: Patient) -> None:
    for partid, priority in (("1", 5), ("4", -5)):
        late = patient.factory.row(partid=partid, due=-2 * HOUR)
        patient.factory.sql("UPDATE pillarbox.queue SET priority = %(p)s WHERE id = %(id)s", p=priority, id=late)
    found = (await patient.worst("mail.overdue")).found
    assert "partition 1: 1 wait" in found
    assert "partition 4: 1 wait" in found


async def test_an_expired_claim_that_stays_is_reported(patient: Patient) -> None:
    ids = patient.factory.rows(2, partid="2")
    patient.factory.lease(ids, ends=timedelta(minutes=-1))
    assert (await patient.worst("mail.lease")).verdict is OK
    patient.factory.lease(ids, ends=timedelta(minutes=-3), worker="gone@host:9")
    finding = await patient.worst("mail.lease")
    assert finding.verdict is WARN
    assert "partition 2: 2 since 3m by gone@host:9" in finding.found


@pytest.mark.parametrize(
    ("reason", "gate"),
    [
        (
            "waiting: host mx.evil.test[192.0.2.1]:25 does not answer: no reply within 300 s",
            "host mx.evil.test[192.0.2.1]:25",
        ),
        ("waiting: 5 attempts under way to host mx.evil.test[192.0.2.1]:25", "host mx.evil.test[192.0.2.1]:25"),
        ("waiting: 1 attempt under way to host mx.evil.test[192.0.2.1]:25", "host mx.evil.test[192.0.2.1]:25"),
        ("waiting: DNS does not answer about evil.test", "DNS"),
    ],
)
async def test_mail_that_waits_for_a_dead_host_or_for_dns_is_reported(patient: Patient, reason: str, gate: str) -> None:
    assert (await patient.worst("mail.hosts")).verdict is OK
    patient.factory.rows(7, partid="1")
    patient.factory.sql(
        "UPDATE pillarbox.queue SET recipientdomain = 'd' || id || '.test', last_error = %(r)s", r=reason
    )
    finding = await patient.worst("mail.hosts")
    assert (finding.verdict, finding.found) == (NOTE, f"mail waits for {gate} (7 recipients of 7 domains)")
    assert (await patient.worst("mail.hosts", shut=(5, 10))).verdict is WARN
    assert (await patient.worst("mail.hosts", shut=(5, 7))).verdict is ALARM


@pytest.mark.parametrize(("age", "limit", "verdict"), [(HOUR, 100, NOTE), (HOUR, 3, WARN), (2 * DAY, 1, OK)])
async def test_dead_letters_are_counted(patient: Patient, age: timedelta, limit: int, verdict: Severity) -> None:
    patient.factory.sql("SELECT pillarbox.history_create(now() - %(age)s, 1)", age=age)
    patient.factory.sql(
        """INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                                          recipientdomain, size, transportid, priority, retry_count)
           SELECT n, gen_random_uuid(), 1, now() - %(age)s, CASE WHEN n < 4 THEN 'failed' ELSE 'success' END, now(),
                  'r', 'd', 1, 'd', 0, 1
             FROM generate_series(1, 9) AS n""",
        age=age,
    )
    finding = await patient.worst("mail.dead", deadletters=limit)
    assert finding.verdict is verdict
    assert ("3 failed" in finding.found) is (verdict is not OK)


async def test_an_old_snapshot_is_reported_with_its_session(patient: Patient) -> None:
    with patient.factory.another("nightly backup") as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT 1 FROM pillarbox.queue")
        finding = await patient.worst("server.horizon", horizon=(timedelta(0), HOUR))
        assert finding.verdict is WARN
        assert "nightly backup" in finding.found
        assert (await patient.worst("server.horizon", horizon=(timedelta(0), timedelta(0)))).verdict is ALARM
        assert (await patient.worst("server.horizon")).verdict is OK


async def test_an_unread_replication_slot_is_reported(patient: Patient, superuser: Factory) -> None:
    superuser.sql("SELECT pg_create_physical_replication_slot('forgotten', true)")
    try:
        finding = await patient.worst("server.slots")
        assert finding.verdict is WARN
        assert "slot forgotten" in finding.found
        assert "read by no client" in finding.found
        assert (await patient.worst("server.slots", wal=(0, 0))).verdict is ALARM
    finally:
        superuser.sql("SELECT pg_drop_replication_slot('forgotten')")


async def test_a_listener_that_blocks_the_notification_queue_is_reported(patient: Patient) -> None:
    with patient.factory.another("deaf listener") as listener:
        listener.execute("LISTEN pillarbox")
        listener.commit()
        listener.execute("SELECT 1")  # and stays in this transaction
        for _ in range(40):
            patient.factory.sql(
                "SELECT pg_notify('pillarbox', repeat('x', 7000) || n) FROM generate_series(1, 20) AS n"
            )
        finding = await patient.worst("server.notifications", notifications=(1e-9, 0.5))
        assert finding.verdict is WARN
        assert "deaf listener in a transaction" in finding.found


async def test_commits_without_durability_are_reported(patient: Patient, superuser: Factory) -> None:
    database = patient.factory.one("SELECT current_database()")
    patient.factory.sql(f"ALTER DATABASE {database} SET synchronous_commit = off")
    assert (await patient.worst("server.durability")).verdict is WARN
    superuser.sql("ALTER SYSTEM SET full_page_writes = off")
    try:
        superuser.sql("SELECT pg_reload_conf()")

        async def reported() -> bool:
            finding = await patient.worst("server.durability")
            return finding.verdict is ALARM and "full_page_writes" in finding.found

        await eventually(reported, "doctor sees that full_page_writes is off")
    finally:
        superuser.sql("ALTER SYSTEM RESET full_page_writes")
        superuser.sql("SELECT pg_reload_conf()")


async def test_sessions_that_cannot_write_are_reported(patient: Patient) -> None:
    assert (await patient.worst("server.writable")).verdict is OK
    database = patient.factory.one("SELECT current_database()")
    patient.factory.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    try:
        finding = await patient.worst("server.writable")
    finally:
        with patient.factory.another() as session:
            session.execute("SET default_transaction_read_only = off")
            session.commit()
            session.execute(f"ALTER DATABASE {database} RESET default_transaction_read_only".encode())
            session.commit()
    assert finding.verdict is ALARM
    assert finding.found == "default_transaction_read_only is on: no mail is accepted or delivered"


def test_a_standby_takes_no_mail() -> None:
    facts = {"version": "18.4", "standby": True, "readonly": True}
    assert server.writable(SimpleNamespace(**facts)).verdict is ALARM


async def test_a_lack_of_connections_is_reported(patient: Patient) -> None:
    used = patient.factory.one("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    most = patient.factory.one("SELECT current_setting('max_connections')::integer")
    limit = (used + 10) / most
    assert (await patient.worst("server.connections", connections=(limit, 0.95))).verdict is OK
    crowd = [psycopg.connect(patient.uri) for _ in range(12)]
    try:
        finding = await patient.worst("server.connections", connections=(limit, 0.95))
        assert finding.verdict is WARN
    finally:
        for each in crowd:
            each.close()


async def test_texts_that_were_indexed_in_another_order_are_reported(patient: Patient, administrator: str) -> None:
    assert (await patient.worst("server.collation")).verdict is OK
    with psycopg.connect(administrator, autocommit=True) as connection:
        actual = """SELECT datname, pg_database_collation_actual_version(oid) AS version, datcollversion
                      FROM pg_database WHERE datname = current_database()"""
        change = "UPDATE pg_database SET datcollversion = %s WHERE datname = current_database()"
        name, version, before = connection.execute(actual).fetchone() or ("", "", "")
        connection.execute(change, ["2.31"])
        try:
            finding = await patient.worst("server.collation")
        finally:
            connection.execute(change, [before])  # other tests use this database after us
    if version is None:  # PostgreSQL 15 knows no version of the locale C
        assert finding.verdict is OK
    else:
        assert finding.verdict is WARN
        assert f"by version 2.31 of their collation, this host has {version}: " in finding.found
        assert f'ALTER DATABASE "{name}" REFRESH COLLATION VERSION' in finding.remedy


@pytest.mark.parametrize(("ahead", "verdict"), [(2, WARN), (-2, WARN), (60, ALARM)])
async def test_clock_skew_is_reported(
    patient: Patient, monkeypatch: pytest.MonkeyPatch, ahead: int, verdict: Severity
) -> None:
    monkeypatch.setattr("operate.doctor.examine.time", lambda: time() + ahead)  # this host's clock
    finding = await patient.worst("server.clock")
    assert finding.verdict is verdict
    assert ("ahead of" if ahead > 0 else "behind") in finding.found


async def test_checks_without_permission_are_reported_and_the_rest_run(patient: Patient, administrator: str) -> None:
    separator = "&" if "?" in administrator else "?"
    uri = f"{administrator}{separator}options=-c%20role%3Dpillarbox_analyst"
    findings = {finding.check: finding for finding in await patient.findings(uri)}
    assert findings["mail.overdue"].verdict is WARN
    assert "permission denied" in findings["mail.overdue"].found
    assert findings["server.durability"].verdict is OK


async def test_doctor_changes_nothing(patient: Patient, server: ServerUnderTest) -> None:
    patient.factory.rows(3)

    def state() -> list[object]:
        tables = patient.factory.sql("SELECT count(*), max(oid::bigint) FROM pg_class")
        rows = patient.factory.sql("SELECT q.*, q.xmin::text, q.ctid::text FROM pillarbox.queue q ORDER BY id")
        return [tables, rows, patient.factory.sql("SELECT * FROM pillarbox.workers ORDER BY worker")]

    with suppress(psycopg.Error):
        patient.factory.sql("VACUUM")  # or autovacuum might tidy the catalog between the looks
    before = state()
    await patient.findings()
    assert state() == before


async def test_mail_that_waits_for_a_login_is_reported(patient: Patient) -> None:
    for said in (
        "cannot log in: host refused our login by PLAIN: 535 5.7.8 no",
        "waiting: transport default is left alone: 530 5.7.0 log in",
        "450 4.2.1 not now",
        "550 5.1.1 535 is my number",
    ):
        patient.factory.rows(1, partid="1")
        patient.factory.sql(
            "UPDATE pillarbox.queue SET last_error = %(said)s WHERE id = (SELECT max(id) FROM pillarbox.queue)",
            said=said,
        )
    [finding] = [f for f in await patient.findings() if f.check == "login.refused"]
    assert finding.verdict is ALARM
    assert finding.found.startswith("transport default: 2 recipients wait: ")
