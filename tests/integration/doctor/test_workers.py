"""test_workers — doctor proves which partitions the workers' conditions serve, and names unserved ones

Owns: the register, conditions, coverage, overlap and mail without a worker, each with its fault planted.
See: operate/doctor/workers.py, shared/postgres/coverage.py; test_conditions.py for every fault of a condition.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from operate.doctor.checks import Severity
from tests.fixtures.database.examined import WORKERS

if TYPE_CHECKING:
    from tests.fixtures.database.examined import Patient

OK, NOTE, WARN, ALARM = Severity.OK, Severity.NOTE, Severity.WARN, Severity.ALARM
PARTID = "metadata->>'_partid'"


async def test_a_silent_worker_is_reported(patient: Patient) -> None:
    patient.enrol("queued-123", WORKERS["queued-123"], silent=timedelta(hours=6))
    texts = "; ".join(finding.found for finding in await patient.about("worker.live"))
    assert "queued-123@host:1 has been silent for 6h" in texts
    patient.enrol("queued-123", WORKERS["queued-123"], pid=2)
    assert (await patient.worst("worker.live")).verdict is OK


async def test_a_worker_that_was_never_started_is_reported(patient: Patient) -> None:
    patient.workers["queued-new"] = "metadata->>'_partid' = '7'"
    finding = await patient.worst("worker.live")
    assert finding.verdict is WARN
    assert "queued-new of queued.yaml does not run" in finding.found


async def test_a_worker_with_an_older_configuration_is_reported(patient: Patient) -> None:
    patient.enrol("queued-123", "true")
    finding = await patient.worst("worker.changed")
    assert finding.verdict is NOTE
    assert "queued-123@host:1" in finding.found


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id IN (SELECT id FROM pillarbox.queue_hold)", "subquery"),
        ("nosuch = 1", 'column "nosuch" does not exist'),
        ("ts < now()", "not immutable"),
        ("public.f(id) = 1", '"public." is not allowed'),
        (f"({PARTID})::inet = '10.0.0.1'", "fails"),
        (f"{PARTID} = '1", "unterminated quoted string"),
    ],
)
async def test_an_invalid_condition_is_reported(patient: Patient, where: str, expected: str) -> None:
    patient.workers["queued-odd"] = where
    alarms = [f for f in await patient.about("worker.condition") if f.verdict is ALARM]
    assert len(alarms) == 1
    assert alarms[0].found.startswith("queued-odd: ")
    assert expected in alarms[0].found


@pytest.mark.parametrize(
    "where", ["id % 2 = 0", "transportid LIKE 'a%'", f"{PARTID} = pillarbox.partition_id('x', 6)", "priority > 0"]
)
async def test_a_condition_may_use_other_columns(patient: Patient, where: str) -> None:
    patient.workers["queued-odd"] = where
    assert (await patient.worst("worker.condition")).verdict is OK
    assert (await patient.worst("partition.served")).verdict is OK


@pytest.mark.parametrize(
    "where",
    [
        "set_config('pillarbox.evil', 'yes', false) = 'yes'",
        "pg_notify('evil', '') IS NULL",
        # A better match than PostgreSQL's own lower, in a schema that any role may write, falsely declared immutable.
        "lower(metadata) = 'x'",
    ],
)
async def test_the_text_of_the_register_is_never_run_before_it_is_proven(patient: Patient, where: str) -> None:
    patient.factory.sql(
        """CREATE FUNCTION public.lower(jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS
           $$ BEGIN PERFORM pg_notify('evil', ''), set_config('pillarbox.evil', 'yes', false); RETURN 'x'; END $$"""
    )
    name = patient.factory.one("SELECT current_database()")
    patient.factory.sql(f"ALTER ROLE CURRENT_USER IN DATABASE {name} SET search_path = public")
    patient.enrol("evil", where)
    with patient.factory.another() as heard:
        heard.execute("LISTEN evil")
        heard.commit()
        assert (await patient.worst("worker.condition")).verdict is ALARM
        assert list(heard.notifies(timeout=0)) == []


async def test_without_temporary_tables_doctor_warns_that_it_cannot_prove_conditions(
    patient: Patient, administrator: str
) -> None:
    name = patient.factory.one("SELECT current_database()")
    patient.factory.sql(f"REVOKE TEMPORARY ON DATABASE {name} FROM PUBLIC")
    separator = "&" if "?" in administrator else "?"
    uri = f"{administrator}{separator}options=-c%20role%3Dpillarbox_queued"
    finding = await patient.worst("worker.condition", uri)
    assert finding.verdict is WARN
    assert "not looked at: doctor may not make a temporary table here" in finding.found
    finding = await patient.worst("partition.served", uri)
    assert finding.verdict is WARN
    assert "it cannot be proven" in finding.found


@pytest.mark.parametrize(
    ("where", "opened"),
    [
        (f"({PARTID})::int IN (1, 2, 3)", "queue_def_456, queue_def_def"),
        (f"lower({PARTID}) = '4'", "queue_def_123, queue_def_def"),
        (f"{PARTID} IN ('1', '2')", None),
        (f"{PARTID} = ANY('{{4,5}}')", None),
        (f"{PARTID} = '99'", None),
        ("true", None),
        (f"{PARTID} IS NULL AND priority > 0", None),
    ],
)
async def test_a_condition_that_opens_foreign_leaves_is_reported(
    patient: Patient, where: str, opened: str | None
) -> None:
    patient.workers["queued-odd"] = where
    finding = await patient.worst("worker.pruning")
    assert finding.verdict is (WARN if opened else OK)
    assert opened is None or f"queued-odd: its claims open {opened}" in finding.found


@pytest.mark.parametrize(
    ("wheres", "verdict", "expected"),
    [
        (["true"], OK, "1, 2, 3, 4, 5, 6, NULL"),
        (["false"], ALARM, "no worker serves partition 1, 2, 3, 4, 5, 6, NULL"),
        ([f"{PARTID} IS NOT NULL"], ALARM, "no worker serves partition NULL"),
        ([f"{PARTID} <> '4' OR {PARTID} IS NULL"], ALARM, "no worker serves partition 4"),
        ([f"{PARTID} IN ('1','2','3')", f"{PARTID} > '3'"], ALARM, "no worker serves partition NULL"),
        ([f"{PARTID} < '4' OR {PARTID} IS NULL", f"{PARTID} >= '4'"], OK, "NULL"),
        ([f"coalesce({PARTID}, '1') IN ('1','2','3','4','5','6')"], OK, "NULL"),
        (["priority >= 0"], WARN, "partition 1, 2, 3, 4, 5, 6, NULL: served in part"),
        (["priority >= 0 OR true"], OK, "NULL"),
        (
            [f"({PARTID} = '4' AND priority > 0) OR {PARTID} <> '4' OR {PARTID} IS NULL"],
            WARN,
            "partition 4: served in part",
        ),
    ],
)
async def test_partitions_without_worker_are_reported(
    patient: Patient, wheres: list[str], verdict: Severity, expected: str
) -> None:
    patient.only(*wheres)
    finding = await patient.worst("partition.served")
    assert finding.verdict is verdict
    assert expected in finding.found


async def test_a_partition_assigned_by_a_rule_needs_a_worker(patient: Patient) -> None:
    rule = {"id": "vip", "if": {"user": ["boss"]}, "then": {"partition": "vip"}}
    patient.smtpd = {"policy": {"rules": [rule]}}
    finding = await patient.worst("partition.served")
    assert finding.verdict is ALARM
    assert finding.found == "no worker serves partition vip"


async def test_a_partition_with_a_dead_worker_is_reported(patient: Patient) -> None:
    patient.enrol("queued-456", WORKERS["queued-456"], silent=timedelta(hours=6))
    finding = await patient.worst("partition.served")
    assert finding.verdict is WARN
    assert "no worker is alive that serves partition 4, 5, 6, NULL" in finding.found
    assert "queued-456" in finding.remedy
    patient.factory.row(partid="2", due=timedelta(hours=1))
    assert (await patient.worst("partition.waiting")).verdict is OK
    patient.factory.row(partid="5", due=timedelta(hours=1))
    patient.factory.row(partid=None)
    finding = await patient.worst("partition.waiting")
    assert finding.verdict is ALARM
    assert "mail of partition 5, NULL waits" in finding.found


async def test_mail_that_a_condition_may_or_may_not_select_is_not_called_served(patient: Patient) -> None:
    patient.only("metadata->>'tenant' = 'acme'")
    patient.factory.row(partid="2", due=timedelta(hours=1))
    finding = await patient.worst("partition.waiting")
    assert finding.verdict is NOTE
    assert "mail of partition 2 waits" in finding.found
    patient.factory.sql(
        """INSERT INTO pillarbox.unserved
           SELECT id, 'queue_def_123', '2', next_retry, now() - interval '2 minutes' FROM pillarbox.queue"""
    )
    finding = await patient.worst("partition.waiting")
    assert finding.verdict is ALARM
    assert "overdue mail of partition 2 is selected by no living worker" in finding.found


async def test_mail_with_an_unknown_partition_id_is_reported(patient: Patient) -> None:
    assert (await patient.worst("partition.unknown")).verdict is NOTE
    patient.factory.rows(2, partid="99")
    finding = await patient.worst("partition.default")
    assert finding.verdict is WARN
    assert "partition 99: 2 recipients" in finding.found
    assert "partition 99" in (await patient.worst("partition.waiting")).found
    patient.workers["rest"] = f"{PARTID} > '6'"
    patient.enrol("rest", patient.workers["rest"])
    assert (await patient.worst("partition.waiting")).verdict is OK


async def test_mail_without_partition_id_in_the_default_leaf_is_a_note(patient: Patient) -> None:
    patient.factory.row(partid=None)
    finding = await patient.worst("partition.default")
    assert finding.verdict is NOTE
    assert "partition NULL: 1 recipient" in finding.found


async def test_workers_may_share_partitions(patient: Patient) -> None:
    patient.enrol("second", f"{PARTID} IN ('3', '4')")
    finding = await patient.worst("partition.overlap")
    assert finding.verdict is NOTE
    assert "partition 3 by queued-123, second" in finding.found
    assert "partition 4 by queued-456, second" in finding.found


async def test_locks_are_counted_by_the_leaves_each_worker_opens(patient: Patient) -> None:
    finding = await patient.worst("server.locks")
    assert finding.verdict is OK
    assert finding.found.startswith("2 workers over 4 leaves may want")
    for number in range(200):
        patient.factory.sql("SELECT pillarbox.queue_leaf_create(%(id)s, ARRAY[%(id)s])", id=f"leaf{number}")
    patient.only("true", "true OR id = 1", f"{PARTID} = '1'")
    finding = await patient.worst("server.locks")
    assert finding.verdict in {WARN, ALARM}
    assert finding.found.startswith("3 workers over 204 leaves may want")
    assert "ALTER SYSTEM SET max_locks_per_transaction" in finding.remedy
    for number, state in enumerate(("enabled", "enabled", "disabled")):
        patient.factory.sql(
            "INSERT INTO pillarbox.webhooks (name, url, events, secrets, state)"
            " VALUES (%(name)s, 'https://app.example', '{delivered}', '{env:X}', %(state)s)",
            name=f"app{number}",
            state=state,
        )
    more = await patient.worst("server.locks")
    assert more.found.startswith("3 workers over 204 leaves and 2 endpoints may want")
    assert most(more.found) > most(finding.found)


def most(text: str) -> int:
    """The number of locks in a finding."""
    [number] = re.findall(r"may want ([0-9,]+) locks", text)
    return int(number.replace(",", ""))
