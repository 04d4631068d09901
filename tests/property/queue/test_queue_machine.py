"""test_queue_machine — any operations on the queue, in any order and concurrently, preserve its invariants

Owns: the state machine: workers, applications, operators and maintenance on a real PostgreSQL, alone and two at once,
    with backends that are killed in the middle. After each step the tables are compared with a model in Python.
Invariants: refcount is the number of queue rows; no row without a body; a body that has had rows is released if, and
    only if, it has none; a lease is whole or not there; ids are unique over all leaves; a recipient that has finished
    has one row in the archive and none in the queue; after a last sweep no body is left that no row names.
See: sql/README.md; `pytest --hypothesis-profile=long` searches longer; --hypothesis-show-statistics prints the steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.fixtures.queue.queue_claims import Claim, Expire, Extend, GiveBack, Refuse, Settle
from tests.fixtures.queue.queue_model import CONDITIONS
from tests.fixtures.queue.queue_operations import Carry, Chosen, Merge, Move, Prioritise, Relocate, Remove, Spool
from tests.fixtures.queue.queue_repartition import LAYOUTS, Repartition
from tests.fixtures.queue.queue_sessions import Bench, Meeting
from tests.fixtures.queue.queue_upkeep import Finish, HoldPoison, Renotify, Requeue, Sweep

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.queue.queue_operations import Operation

PICKS = st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(tuple)
PARTIDS = st.sampled_from(["1", "2", "4", "elsewhere", None])
PRIORITIES = st.sampled_from([0, 0, 5, -5])
ROWS = st.lists(
    st.tuples(PARTIDS, st.sampled_from(["DELIVER", "DELIVER", "HOLD"]), PRIORITIES), min_size=1, max_size=4
).map(tuple)
AN_OLD_ONE = st.integers(0, 7)
A_CLAIM = st.sampled_from([0, 0, 0, 1, 2, 7])
CONDITION = st.sampled_from(["true", *CONDITIONS])
RESULTS = st.lists(st.sampled_from(["success", None, "failed", "expired"]), min_size=1, max_size=4).map(tuple)
HOURS = st.sampled_from([0, 2])

SPOOL = st.builds(Spool, ROWS, st.sampled_from(["copy", "insert", "leaves", "enqueue"]))
MORE = st.builds(Spool, ROWS, st.sampled_from(["copy", "insert", "leaves"]), AN_OLD_ONE)
MAIL = st.one_of(SPOOL, MORE)
UNANSWERED = st.sampled_from([None, None, None, 0, 1])
CLAIM = st.builds(Claim, CONDITION, st.integers(1, 5), st.sampled_from([False, False, False, True]), UNANSWERED)
ALL = st.just(Claim("true", 5))
SETTLE = st.one_of(st.builds(Settle, A_CLAIM, RESULTS), st.builds(Settle, A_CLAIM, RESULTS), st.builds(Refuse, A_CLAIM))
LEASE = st.one_of(st.builds(Extend, A_CLAIM), st.builds(GiveBack, A_CLAIM))
OUTLIVED = st.one_of(
    st.builds(Settle, st.just(1), RESULTS),
    st.builds(Refuse, st.just(1)),
    st.builds(Extend, st.just(1)),
    st.builds(GiveBack, st.just(1)),
)
UPKEEP = st.one_of(
    st.just(Finish()),
    st.just(Finish()),
    st.builds(Sweep, HOURS, HOURS),
    st.builds(HoldPoison, st.sampled_from([2, 3])),
    st.just(Renotify()),
    st.builds(Requeue, PICKS),
)


def by_hand(picks: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[Operation]:
    """An operation on chosen rows."""
    return st.one_of(
        st.builds(Move, picks, st.sampled_from(["HOLD", "DELIVER", "DELETE", "BOUNCE"]), st.booleans()),
        st.builds(Remove, picks, st.booleans()),
        st.builds(Relocate, picks, PARTIDS),
        st.builds(Carry, picks, PARTIDS, st.booleans()),
        st.builds(Prioritise, picks, PRIORITIES),
        st.builds(Merge, picks, PICKS),
        st.builds(Expire, picks),
    )


def meetings(picks: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[Meeting]:
    """Any two operations on the rows picked; the third does not depend on its own transaction."""
    work = st.one_of(CLAIM, SETTLE, by_hand(picks))
    each = st.one_of(work, work, LEASE, UPKEEP, MAIL)
    ending = st.sampled_from(["commit", "commit", "rollback", "kill"])
    return st.builds(
        Meeting, each, each, st.none() | st.one_of(CLAIM, SETTLE, by_hand(picks), SPOOL), ending, st.booleans()
    )


def on_the_same(picks: tuple[int, ...], meeting: Meeting) -> Meeting:
    """The meeting with these rows in place of those that its operations picked."""

    def on_them(operation: Operation | None) -> Any:
        return replace(operation, picks=picks) if isinstance(operation, Chosen) else operation

    return replace(meeting, first=on_them(meeting.first), second=on_them(meeting.second), third=on_them(meeting.third))


# Made once: strategies made for each example, by flatmap, took half of this test's time in Python.
CLASH = st.builds(on_the_same, PICKS, meetings(st.just((0,))))
ANY = st.one_of(MAIL, MAIL, CLAIM, SETTLE, by_hand(PICKS), by_hand(PICKS), UPKEEP, meetings(PICKS))
REPARTITION = st.builds(
    Repartition,
    st.integers(1, len(LAYOUTS) - 1),
    st.lists(ANY, min_size=1, max_size=4).map(tuple),
    st.one_of(st.none(), st.none(), st.integers(1, 9)),
)
_PUT_BACK = """WITH gone AS (DELETE FROM pillarbox.queue WHERE id = %s RETURNING *)
    INSERT INTO pillarbox.{leaf} (id, messages__id, recipientlocalpart, recipientdomain, metadata, status)
    SELECT id, messages__id, recipientlocalpart, recipientdomain, metadata, %s FROM gone"""
_PUT = """INSERT INTO pillarbox.{leaf} (id, messages__id, recipientlocalpart, recipientdomain, metadata, status)
    VALUES (%s, %s, 'r', 'example.com', jsonb_build_object('_partid', %s::text), %s)"""
_BORN = """INSERT INTO pillarbox.{leaf} (messages__id, recipientlocalpart, recipientdomain, metadata, status)
    SELECT messages__id, 'r', 'example.com', metadata, %s FROM pillarbox.queue WHERE id = %s"""


class QueueMachine(RuleBasedStateMachine):
    """Each rule is one step; see the strategies above for what it may do."""

    bench: Bench

    def __init__(self) -> None:
        super().__init__()
        self.cut = False

    @initialize(mail=st.lists(SPOOL, min_size=1, max_size=3))
    def begin(self, mail: list[Spool]) -> None:
        """With a little mail."""
        self.bench.clear()
        for one in mail:
            self.bench.do(one)

    @rule(operation=MAIL)
    def application(self, operation: Spool) -> None:
        """Mail comes in."""
        self.bench.do(operation)

    @rule(claim=st.one_of(CLAIM, ALL), then=st.lists(st.one_of(SETTLE, SETTLE, LEASE), max_size=2))
    def worker(self, claim: Claim, then: list[Operation]) -> None:
        """A worker claims due rows, and perhaps finishes them."""
        self.bench.do(claim)
        for operation in then:
            self.bench.do(operation)

    @rule(operation=st.one_of(SETTLE, LEASE))
    def late_worker(self, operation: Operation) -> None:
        """A worker returns to the rows it had claimed, in time or too late."""
        self.bench.do(operation)

    @rule(picks=PICKS, times=st.integers(1, 3), late=st.one_of(OUTLIVED, OUTLIVED, st.none()))
    def dead_workers(self, picks: tuple[int, ...], times: int, late: Operation | None) -> None:
        """Workers claim and are heard of no more, or one of them when its mail is in other hands."""
        for _ in range(times):
            self.bench.do(Claim("true", 5))
            self.bench.do(Claim("true", 1, suspects=True))
            self.bench.do(Expire(picks))
        if late is not None:
            self.bench.do(Claim("true", 5))
            self.bench.do(late)

    @rule(operations=st.lists(by_hand(PICKS), min_size=1, max_size=3))
    def operator(self, operations: list[Operation]) -> None:
        """A manual operation."""
        for operation in operations:
            self.bench.do(operation)

    @rule(operations=st.lists(UPKEEP, min_size=1, max_size=3))
    def upkeep(self, operations: list[Operation]) -> None:
        """Maintenance does something."""
        for operation in operations:
            self.bench.do(operation)

    @rule(meeting=meetings(PICKS))
    def meeting(self, meeting: Meeting) -> None:
        """Two do something at once."""
        self.bench.meet(meeting)

    @rule(meeting=CLASH)
    def clash(self, meeting: Meeting) -> None:
        """Two do something at once, to the same rows."""
        self.bench.meet(meeting)

    @rule(order=st.permutations(range(4)), repeatable=st.booleans())
    def merges(self, order: list[int], repeatable: bool) -> None:  # noqa: FBT001 - Hypothesis names it
        """Two statements at once, each of which holds one recipient of a message and deletes another."""
        self.bench.do(Spool((("1", "DELIVER", 0),) * 4, "insert"))
        there = sum(row.status == "DELIVER" for row in self.bench.model.rows.values())
        held, gone, also_held, also_gone = ((there - 4 + n,) for n in order)
        self.bench.meet(Meeting(Merge(held, gone), Merge(also_held, also_gone), None, "commit", repeatable))

    @rule(picks=PICKS, status=st.sampled_from(["DELETE", "BOUNCE", "HOLD"]), results=RESULTS)
    def called_off(self, picks: tuple[int, ...], status: str, results: tuple[str | None, ...]) -> None:
        """An operator decides about mail being sent; maintenance runs before and after its result."""
        for operation in (Claim("true", 5), Move(picks, status), Finish(), Settle(0, results), Finish()):
            self.bench.do(operation)

    @rule(picks=PICKS, repeatable=st.booleans())
    def requeued_twice(self, picks: tuple[int, ...], repeatable: bool) -> None:  # noqa: FBT001 - Hypothesis names it
        """Two requeue the same dead letters at once."""
        for operation in (Claim("true", 5), Settle(0, ("failed",))):
            self.bench.do(operation)
        self.bench.meet(Meeting(Requeue(picks), Requeue(picks), None, "commit", repeatable))

    @rule(hours=st.sampled_from([1, 30]))
    def time_passes(self, hours: int) -> None:
        """Leases end, deferred mail is due, graces are over."""
        self.bench.pass_time(hours)

    @precondition(lambda self: not self.cut)
    @rule(change=REPARTITION)
    def repartition(self, change: Repartition) -> None:
        """The queue is repartitioned meanwhile; once in an example, because it takes long."""
        self.cut = True
        self.bench.repartition(change)

    @rule(pick=AN_OLD_ONE, begin=st.sampled_from(["DELIVER", "HOLD"]), end=st.sampled_from(["DELETE", "BOUNCE"]))
    def forbidden(self, pick: int, begin: str, end: str) -> None:
        """TRUNCATE miscounts no body, and no row begins in a final status or leaves one, in any statement or table."""
        self.bench.distrust()
        self.bench.do(Move((pick,), end))
        model, error = self.bench.model, psycopg.errors.CheckViolation
        for table in {"queue", "queue_hold", "queue_def", "queue_def_def", *model.leaves.values()}:
            self.bench.refuse(psycopg.errors.RestrictViolation, f"TRUNCATE pillarbox.{table}")
        for row in model.pick([pick]):
            for table in ("queue", model.leaf(end, row.partid)):
                self.bench.refuse(error, _BORN.format(leaf=table), end, row.id)
        for row in model.pick([pick], "DELETE", "BOUNCE"):
            for table in ("queue", model.leaf(row.status, row.partid)):
                text = f"UPDATE pillarbox.{table} SET status = %s WHERE id = %s"  # noqa: S608 - our own names
                self.bench.refuse(error, text, begin, row.id)
            for table in ("queue", model.leaf(begin, row.partid)):
                self.bench.refuse(error, _PUT_BACK.format(leaf=table), row.id, begin)
                gone = f"DELETE FROM pillarbox.queue WHERE id = {row.id}"  # noqa: S608 - a number
                self.bench.refuse(error, _PUT.format(leaf=table), row.id, row.message, row.partid, begin, after=gone)

    @invariant()
    def tables_agree(self) -> None:
        """With the model, and with every rule."""
        self.bench.compare()

    def teardown(self) -> None:
        """A last sweep, when nothing is kept any more, leaves no body that no row names."""
        if not self.bench.sound:
            return
        self.bench.at += 1000 * (self.bench.at - self.bench.model.start)
        self.bench.do(Sweep(0, 0))
        assert self.bench.model.released.keys() == {row.message for row in self.bench.model.rows.values()}
        self.bench.compare()


@pytest.fixture(autouse=True)
def _bench(database: str) -> Iterator[None]:
    QueueMachine.bench = Bench(database)
    yield
    QueueMachine.bench.close()


pytestmark = pytest.mark.slow
TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(stateful_step_count=25)
