"""test_doctor_verdicts — doctor's verdicts for states that a real server cannot be put into

Owns: the limits of clock, disk, version, slots and prepared transactions; served partitions; the worst verdict.
See: tests/integration/doctor/test_faults.py for every fault that can be planted.
"""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from operate.doctor import queue as doctor_queue
from operate.doctor import server as doctor_server
from operate.doctor import workers
from operate.doctor.checks import CHECKS, Finding, Limits, Severity, graded, listed, span, worst
from operate.doctor.conditions import homes
from operate.doctor.workers import Proof, Server
from queued.claiming.whole_leaves import opened
from shared.postgres.coverage import Partid, Serves, configured, judge, unserved

LIMITS = Limits()
A, P, N = Serves.ALL, Serves.PART, Serves.NONE
OK, NOTE, WARN, ALARM = Severity.OK, Severity.NOTE, Severity.WARN, Severity.ALARM


def row(**columns: Any) -> Any:
    return SimpleNamespace(**columns)


@pytest.mark.parametrize(
    ("readings", "skew"),
    [
        ([(10.0, 10.5, 11.0)], 0.0),
        ([(10.0, 9.0, 10.1)], 1.0),
        ([(10.0, 17.0, 10.1)], -6.9),
        # The shortest round trip is the most precise.
        ([(10.0, 10.9, 12.0), (20.0, 22.0, 20.5)], -1.5),
    ],
)
def test_only_skew_that_the_network_cannot_explain_counts(
    readings: list[tuple[float, float, float]], skew: float
) -> None:
    assert doctor_server.sure_skew(readings) == pytest.approx(skew)


@pytest.mark.parametrize(("skew", "verdict"), [(0.9, OK), (-1.0, WARN), (4.9, WARN), (5.0, ALARM), (-60.0, ALARM)])
def test_clock_skew_has_its_verdict(skew: float, verdict: Severity) -> None:
    assert doctor_server.clock(skew, LIMITS).verdict is verdict


@pytest.mark.parametrize(("free", "verdict"), [(3 << 30, OK), (2 << 30, WARN), (512 << 20, ALARM), (0, ALARM)])
def test_free_disk_space_has_its_verdict(free: int, verdict: Severity) -> None:
    assert doctor_server.disk(free, 100 << 30, LIMITS).verdict is verdict


@pytest.mark.parametrize(
    ("unsafe", "verdict"),
    [([], OK), (["synchronous_commit=off"], WARN), (["fsync=off"], ALARM), (["full_page_writes=off"], ALARM)],
)
def test_settings_that_lose_commits_have_their_verdict(unsafe: list[str], verdict: Severity) -> None:
    finding = doctor_server.durability(row(unsafe=unsafe))
    assert finding.verdict is verdict
    assert all(name.partition("=")[0] in finding.found for name in unsafe)


@pytest.mark.parametrize(("number", "verdict"), [(150_018, OK), (180_001, OK), (190_000, NOTE)])
def test_the_version_of_postgresql_has_its_verdict(number: int, verdict: Severity) -> None:
    assert doctor_server.version(row(version="x", number=number, standby=False)).verdict is verdict


@pytest.mark.parametrize(
    ("opened", "leaves", "verdict"),
    [
        ([3, 3], 3, OK),
        ([16] * 32, 500, ALARM),  # 32 * (320 + 400) + 20,000
        ([16] * 8, 128, WARN),
        ([16] * 4, 64, OK),
        ([500], 500, ALARM),
        ([500] * 32, 500, ALARM),
    ],
)
def test_the_size_of_the_lock_table_has_its_verdict(opened: list[int], leaves: int, verdict: Severity) -> None:
    shipped = row(locks_each=64, lockers=200)
    finding = doctor_server.locks(shipped, opened, leaves, 0, LIMITS)
    assert finding.verdict is verdict
    if verdict:
        enough = int(finding.remedy.split(" = ")[1].split(" ")[0])
        assert doctor_server.locks(row(locks_each=enough, lockers=200), opened, leaves, 0, LIMITS).verdict is OK


def test_a_prepared_transaction_is_named_with_its_own_remedy() -> None:
    held = row(what="prepared transaction", who="gone of app", age=timedelta(hours=2))
    finding = doctor_server.horizon([held], LIMITS)
    assert finding.verdict is ALARM
    assert "gone of app for 2h" in finding.found
    assert "ROLLBACK PREPARED" in finding.remedy


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, OK),
        ({"active": False}, WARN),
        ({"wal": 2 << 30}, WARN),
        ({"wal": 16 << 30}, ALARM),
        ({"wal_status": "lost"}, ALARM),
    ],
)
def test_replication_slots_have_their_verdict(changes: dict[str, Any], verdict: Severity) -> None:
    healthy = {"slot": "s", "kind": "physical", "database": "-", "active": True, "reader": "standby of replicator"}
    slot = row(**{**healthy, "transactions": None, "wal_status": "reserved", "wal": 0, **changes})
    assert [finding.verdict for finding in doctor_server.slots([slot], LIMITS)] == [verdict]


def server(*names: str, live: bool = True, **answers: Serves) -> Server:
    """A worker; answers by id, `null` for none, everything else is not served."""
    asked: list[Partid] = ["1", "2", None, "9"]
    given = {partid: answers.get(f"p{partid}" if partid else "null", N) for partid in asked}
    return Server(names, live, Proof("…", answers=given))


@pytest.mark.parametrize(
    ("servers", "verdicts"),
    [
        ([server("a", p1=A, p2=A, null=A)], {"partition.served": OK}),
        ([server("a", p1=A), server("b", p2=A, null=A)], {"partition.served": OK, "partition.overlap": OK}),
        ([server("a", p1=A, p2=A)], {"partition.served": ALARM}),
        ([], {"partition.served": ALARM}),
        ([server("a", p1=A, p2=P, null=A)], {"partition.served": WARN}),
        ([server("a", p1=A, null=A), server("b", live=False, p2=A)], {"partition.served": WARN}),
        ([server("a", p1=A, p2=A, null=A), server("b", p2=P)], {"partition.served": OK, "partition.overlap": NOTE}),
        ([server("a", "b", p1=A, p2=A, null=A)], {"partition.overlap": NOTE}),
        ([server("a", p1=A, p2=A, null=A, p9=A)], {"partition.unknown": OK}),
        ([server("a", p1=A, p2=A, null=A)], {"partition.unknown": NOTE}),
    ],
)
def test_unserved_and_shared_partitions_have_their_verdict(
    servers: list[Server], verdicts: dict[str, Severity]
) -> None:
    found = workers.served(servers, ["1", "2", None], "9")
    for check, verdict in verdicts.items():
        assert worst(f for f in found if f.check == check) is verdict, found


def test_a_worker_whose_condition_was_not_proven_serves_nothing() -> None:
    unproven = Server(("a",), live=True, proof=Proof("now() > ts", fault="it is not immutable"))
    assert worst(workers.served([unproven], ["1"], "9")) is ALARM
    assert workers.waiting([unproven], ["1"], []).verdict is ALARM


@pytest.mark.parametrize(
    ("serves", "unserved", "verdict", "found"),
    [
        (Serves.ALL, [], OK, "no mail waits without a worker"),
        (Serves.PART, [], NOTE, "mail of partition 1 waits, and whether a living worker selects it cannot be proven"),
        (Serves.PART, ["1"], ALARM, "overdue mail of partition 1 is selected by no living worker"),
        (Serves.NONE, [], ALARM, "mail of partition 1 waits, and no worker is alive that serves it"),
    ],
)
def test_mail_waits_without_a_worker(serves: Serves, unserved: list[Partid], verdict: Severity, found: str) -> None:
    server = Server(("a",), live=True, proof=Proof("any", answers={"1": serves}))
    finding = workers.waiting([server], ["1"], unserved)
    assert finding.verdict is verdict
    assert found in finding.found


@pytest.mark.parametrize(
    ("left", "serves"),
    [("true", A), ("false", N), ("NULL::boolean", N), ("(priority > 0)", P), ("(NULL::boolean AND (priority > 0))", P)],
)
def test_a_condition_simplified_by_the_planner_shows_what_it_serves(left: str, serves: Serves) -> None:
    assert judge(left) is serves


def test_partition_ids_are_the_hashed_the_named_and_null() -> None:
    assert configured(2, "2", "vip") == ["1", "2", "vip", None]
    assert unserved(["1", None], []) == ["1", None]
    assert unserved(["1", None], [{"1": P, None: N}]) == [None]


def test_the_leaves_of_a_plan_and_of_a_condition_are_found() -> None:
    plan = [{"Plan": {"Node Type": "Append", "Plans": [{"Relation Name": "a"}, {"Plans": [{"Relation Name": "b"}]}]}}]
    assert opened(plan) == {"a", "b"}
    leaves = [
        row(name="queue_def_123", leaf=True, bound="FOR VALUES IN ('1', 'it''s')"),
        row(name="queue_def_def", leaf=True, bound="DEFAULT"),
    ]
    assert homes({"it's": A, "2": N}, leaves) == {"queue_def_123"}
    assert homes({"7": P, None: A}, leaves) == {"queue_def_def"}
    of_null = [*leaves, row(name="queue_def_none", leaf=True, bound="FOR VALUES IN (NULL)")]
    assert homes({None: A}, of_null) == {"queue_def_none"}


@pytest.mark.parametrize(
    ("options", "odd"),
    [
        (["fillfactor=70", "autovacuum_vacuum_scale_factor=0"], 0),
        ([], 2),
        (["fillfactor=70", "autovacuum_vacuum_scale_factor=0", "autovacuum_enabled=false"], 1),
        (["fillfactor=100", "autovacuum_vacuum_scale_factor=0.1"], 2),
    ],
)
def test_unusual_storage_parameters_are_counted(options: list[str], odd: int) -> None:
    assert len(doctor_queue.storage(options)) == odd


def test_bloat_counts_dead_rows_and_free_space() -> None:
    leaf = {"name": "l", "leaf": True, "unique_id": True, "triggers": [], "indexes": [], "options": []}

    def verdict(**figures: int) -> Severity:
        found = doctor_queue.leaves([row(**leaf, **figures)], LIMITS)
        return next(f.verdict for f in found if f.check == "leaf.bloat")

    assert verdict(live=1_000_000, dead=49_999, bytes=1 << 30) is OK
    assert verdict(live=1_000_000, dead=50_000, bytes=1 << 30) is WARN
    assert verdict(live=100, dead=0, bytes=255 << 20) is OK
    assert verdict(live=100, dead=0, bytes=256 << 20) is WARN


def test_helpers_write_lists_spans_and_grades() -> None:
    assert worst([]) is OK
    assert graded(0.8, (0.8, 0.95)) is WARN
    assert listed(range(8)) == "0, 1, 2, 3, 4, 5 and 2 more"
    assert span(timedelta(days=2, hours=3, minutes=4)) == "2d3h"
    assert span(timedelta(seconds=59.6)) == "1m"
    with pytest.raises(KeyError):
        Finding("no.such", OK, "")
    assert all(text.strip() for text in CHECKS.values())
