"""test_states — document, code and database agree on the allowed transitions, and the database enforces them

Owns: proofs that sql/README.md, shared/mail/states.py and status_transitions are one table, and that no move outside
    it is possible, on the root or on a leaf.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.mail.states import TRANSITIONS, Status, may_move

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

README = Path(__file__).resolve().parents[3] / "sql" / "README.md"
MOVES = [(previous, following) for previous, following in product(Status, Status) if previous != following]
LEGAL = [move for move in MOVES if move in TRANSITIONS]
ILLEGAL = [move for move in MOVES if move not in TRANSITIONS]
LEAF = {Status.HOLD: "queue_hold", Status.DELIVER: "queue_def_123"}


def documented() -> list[tuple[str | None, str]]:
    """The rows of the table `from | to | who` in the section "States"."""
    section = README.read_text(encoding="utf-8").partition("\n## States\n")[2].partition("\n## ")[0]
    table = [
        [cell.strip().strip("`") for cell in line.strip().strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|")
    ]
    start = table.index(["from", "to", "who"])
    rows = table[start + 2 :]
    assert all(len(row) == 3 and row[2] for row in rows), "every transition names its actor"
    return [(None if previous == "(new)" else previous, following) for previous, following, _ in rows]


def test_document_and_code_and_database_have_one_table(factory: Factory) -> None:
    rows = documented()
    assert len(rows) == len(set(rows)), "a move is documented twice"
    in_code = {(previous and previous.value, following.value) for previous, following in TRANSITIONS}
    in_database = {(row.previous, row.next) for row in factory.sql("SELECT * FROM pillarbox.status_transitions")}
    assert set(rows) == in_code == in_database


def test_code_and_database_have_the_same_statuses(factory: Factory) -> None:
    found = factory.sql("SELECT unnest(enum_range(NULL::pillarbox.queue_status))::text AS status")
    assert [row.status for row in found] == [status.value for status in Status]


@pytest.mark.parametrize(("previous", "following"), LEGAL)
def test_a_legal_transition_is_accepted(factory: Factory, previous: Status, following: Status) -> None:
    assert may_move(previous, following)
    id_ = factory.row(status=previous, partid="2")
    factory.move([id_], following)
    [row] = factory.queue(id_)
    assert (row.status, row.leaf) == (following, LEAF.get(following, "queue_def_123"))


@pytest.mark.parametrize("aim", ["root", "leaf"])
@pytest.mark.parametrize(("previous", "following"), ILLEGAL)
def test_an_illegal_transition_is_refused(factory: Factory, previous: Status, following: Status, aim: str) -> None:
    assert not may_move(previous, following)
    id_ = factory.row(status=previous, partid="2")
    table = "queue" if aim == "root" else LEAF.get(previous, "queue_def_123")
    with pytest.raises(psycopg.errors.CheckViolation, match=f"cannot go from {previous} to {following}"):
        factory.on(table, "UPDATE {table} SET status = %(status)s WHERE id = %(id)s", status=following, id=id_)
    assert [row.status for row in factory.queue()] == [previous]


def test_one_illegal_transition_refuses_the_whole_statement(factory: Factory) -> None:
    good, bad = factory.row(), factory.row(status="DELETE")
    with pytest.raises(psycopg.errors.CheckViolation):
        factory.move([good, bad], "HOLD")
    assert {row.id: row.status for row in factory.queue()} == {good: "DELIVER", bad: "DELETE"}


@pytest.mark.parametrize("table", ["queue", "queue_def", "queue_def_def"])
@pytest.mark.parametrize("status", [status for status in Status if not may_move(None, status)])
def test_a_new_row_in_a_later_status_is_refused(factory: Factory, table: str, status: Status) -> None:
    message = factory.message()
    with pytest.raises(psycopg.errors.CheckViolation, match="begins as DELIVER or HOLD"):
        factory.on(
            table,
            """INSERT INTO {table} (messages__id, status, recipientlocalpart, recipientdomain)
               VALUES (%(message)s, %(status)s, 'r', 'example.com')""",
            message=message,
            status=status,
        )
    assert factory.queue() == []
    assert factory.bodies()[message].refcount == 0


def test_an_unchanged_status_is_not_a_transition(factory: Factory) -> None:
    for status in Status:
        factory.row(status=status)
    factory.sql("UPDATE pillarbox.queue SET status = status, priority = 3")
    assert {row.priority for row in factory.queue()} == {3}


def test_the_view_refines_the_status_by_time(factory: Factory) -> None:
    hour = timedelta(hours=1)
    active, scheduled = factory.row(), factory.row(due=hour)
    deferred, overdue = factory.row(due=hour, tries=2), factory.row(tries=2)
    sending, expired = factory.row(), factory.row()
    factory.lease([sending], ends=hour)
    factory.lease([expired], ends=-hour)
    held, deleted, bounced = (factory.row(status=status) for status in ("HOLD", "DELETE", "BOUNCE"))
    assert {row.id: row.state for row in factory.sql("SELECT id, state FROM pillarbox.queue_state")} == {
        active: "ACTIVE",
        scheduled: "SCHEDULED",
        deferred: "DEFER",
        overdue: "ACTIVE",
        sending: "SENDING",
        expired: "ACTIVE",
        held: "HOLD",
        deleted: "DELETE",
        bounced: "BOUNCE",
    }
