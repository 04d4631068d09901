"""test_queue_machine — whatever is done to the queue, in whatever order and at once, every rule of it holds

Owns: the state machine: workers, applications, operators and maintenance on a real PostgreSQL, alone and two at once,
    with backends that are killed in the middle. After each step the tables are compared with a model in Python.
Invariants: refcount is the number of queue rows; no row without a body; a body that has had rows is released if, and
    only if, it has none; a lease is whole or not there; ids are unique over all leaves; a recipient that has finished
    has one row in the archive and none in the queue; after a last sweep no body is left that no row names.
See: sql/README.md; `pytest --hypothesis-profile=long` looks longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    run_state_machine_as_test,
)

from tests.fixtures.queue_claims import Claim, Expire, Extend, GiveBack, Settle
from tests.fixtures.queue_model import CONDITIONS
from tests.fixtures.queue_operations import Carry, Merge, Move, Prioritise, Relocate, Remove, Spool
from tests.fixtures.queue_sessions import Bench, Meeting
from tests.fixtures.queue_upkeep import Finish, HoldPoison, Renotify, Requeue, Sweep

if TYPE_CHECKING:
    from tests.fixtures.queue_operations import Operation

PICKS = st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True).map(tuple)
PARTIDS = st.sampled_from(["1", "2", "4", "elsewhere", None])
PRIORITIES = st.sampled_from([0, 0, 5, -5])
ROWS = st.lists(
    st.tuples(PARTIDS, st.sampled_from(["DELIVER", "DELIVER", "HOLD"]), PRIORITIES), min_size=1, max_size=4
).map(tuple)
AN_OLD_ONE = st.integers(0, 7)
CONDITION = st.sampled_from(list(CONDITIONS))
RESULTS = st.lists(st.sampled_from(["success", None, "failed", "expired"]), min_size=1, max_size=4).map(tuple)
HOURS = st.sampled_from([0, 2])

SPOOL = st.builds(Spool, ROWS, st.sampled_from(["copy", "insert", "leaves", "enqueue"]))
MORE = st.builds(Spool, ROWS, st.sampled_from(["copy", "insert", "leaves"]), AN_OLD_ONE)
CLAIM = st.builds(Claim, CONDITION, st.integers(1, 5), st.sampled_from([False, False, True]))
SETTLE = st.builds(Settle, AN_OLD_ONE, RESULTS)
LEASE = st.one_of(st.builds(Extend, AN_OLD_ONE), st.builds(GiveBack, AN_OLD_ONE), st.builds(Expire, PICKS))
MOVE = st.builds(Move, PICKS, st.sampled_from(["HOLD", "DELIVER", "DELETE", "BOUNCE"]), st.booleans())
EDIT = st.one_of(
    st.builds(Remove, PICKS, st.booleans()),
    st.builds(Relocate, PICKS, PARTIDS),
    st.builds(Carry, PICKS, PARTIDS, st.booleans()),
    st.builds(Prioritise, PICKS, PRIORITIES),
    st.builds(Merge, PICKS, PICKS),
)
UPKEEP = st.one_of(
    st.just(Finish()),
    st.builds(Sweep, HOURS, HOURS),
    st.builds(HoldPoison, st.sampled_from([1, 3])),
    st.just(Renotify()),
    st.builds(Requeue, PICKS),
)
ANY = st.one_of(CLAIM, SETTLE, MOVE, EDIT, LEASE, UPKEEP, MORE, SPOOL)
THIRD = st.one_of(CLAIM, SETTLE, MOVE, EDIT, SPOOL)
MEETING = st.builds(
    Meeting, ANY, ANY, st.none() | THIRD, st.sampled_from(["commit", "rollback", "kill"]), st.booleans()
)
TABLES = ["queue", "queue_hold", "queue_def", "queue_def_123", "queue_def_456", "queue_def_def"]


class QueueMachine(RuleBasedStateMachine):
    """Each rule is one step; see the strategies above for what it may do."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench

    @initialize()
    def begin(self) -> None:
        """With nothing."""
        self.bench.clear()

    @rule(operation=st.one_of(SPOOL, MORE))
    def application(self, operation: Spool) -> None:
        """Mail comes in."""
        self.bench.do(operation)

    @rule(operation=st.one_of(CLAIM, SETTLE, LEASE))
    def worker(self, operation: Operation) -> None:
        """A worker does something."""
        self.bench.do(operation)

    @rule(operation=st.one_of(MOVE, EDIT))
    def operator(self, operation: Operation) -> None:
        """Somebody does something by hand."""
        self.bench.do(operation)

    @rule(operation=UPKEEP)
    def upkeep(self, operation: Operation) -> None:
        """Maintenance does something."""
        self.bench.do(operation)

    @rule(meeting=MEETING)
    def meeting(self, meeting: Meeting) -> None:
        """Two do something at once."""
        self.bench.meet(meeting)

    @rule(hours=st.sampled_from([1, 30]))
    def time_passes(self, hours: int) -> None:
        """Leases end, deferred mail is due, graces are over."""
        self.bench.pass_time(hours)

    @rule(table=st.sampled_from(TABLES))
    def truncate(self, table: str) -> None:
        """It would miscount."""
        self.bench.refuse(psycopg.errors.RestrictViolation, f"TRUNCATE pillarbox.{table}")

    @precondition(lambda self: self.bench.model.rows)
    @rule(pick=AN_OLD_ONE, status=st.sampled_from(["DELIVER", "HOLD"]))
    def come_back(self, pick: int, status: str) -> None:
        """What is to end does not come back."""
        for row in self.bench.model.pick([pick], "DELETE", "BOUNCE"):
            text = f"UPDATE pillarbox.{row.leaf} SET status = %s WHERE id = %s"  # noqa: S608 - our own names
            self.bench.refuse(psycopg.errors.CheckViolation, text, status, row.id)

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


@pytest.mark.slow
def test_every_rule_holds_whatever_is_done(database: str) -> None:
    bench = Bench(database)

    class OnThisDatabase(QueueMachine):
        def __init__(self) -> None:
            super().__init__(bench)

    try:
        run_state_machine_as_test(OnThisDatabase, settings=settings(stateful_step_count=30))
    finally:
        bench.close()
