"""test_audit_rights — an audit record states the actual change, for any writer

Owns: the forgeries that a reviewer could try, so that an operator's `undo` exceeds the reviewer's rights.
See: sql/schema/17_audit.sql; tests/integration/schema/test_roles_refused.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.fixtures.database.operating import Pillarbox, write_config

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

BEGIN = "SELECT pillarbox.audit_begin('me', %s, 'id>0', %s::jsonb, NULL, NULL, 1)"
ADD = "SELECT pillarbox.audit_add(%s, %s::bigint[], %s)"


@pytest.fixture
def operator(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """The owner of the queue."""
    return Pillarbox(write_config(tmp_path / "operator", database), capsys, "queue")


def test_forged_audit_rows_of_a_reviewer_are_refused_and_cannot_be_undone(
    factory: Factory, logins: Logins, operator: Pillarbox
) -> None:
    waiting = factory.row(transportid="default")
    [row] = factory.queue(waiting)
    forged = json.dumps({"status": "DELIVER", "transport": "of-my-choice", "tries": 0})
    with logins.session("reviewer") as reviewer:
        for statement, values in (
            ("INSERT INTO audit (verb, condition, argument, wanted) VALUES ('move', '', %s, 1)", ('{"a": "x"}',)),
            (
                "INSERT INTO audit_rows (audit__id, queue__id, messages__id, before) VALUES (1, %s, %s, %s)",
                (waiting, row.messages__id, forged),
            ),
            ("UPDATE audit SET done = 1", ()),
            ("UPDATE audit_rows SET before = '{}'", ()),
            ("DELETE FROM audit", ()),
            (BEGIN, ("move", '{"transport": "x"}')),
            (BEGIN, ("priority", "{}")),
            (BEGIN, ("hold", "{}")),
            (BEGIN, ("undo", "{}")),
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reviewer.execute(statement.encode(), values)
    assert factory.sql("SELECT 1 FROM pillarbox.audit") == []
    operator.run("undo", "1", "--yes")
    assert operator.status == 1
    assert factory.queue(waiting)[0].transportid == "default"


def test_rows_recorded_but_not_changed_by_a_reviewer_are_not_undone(
    factory: Factory, logins: Logins, operator: Pillarbox
) -> None:
    """The actual rows are recorded, not the caller's; and only those that the same transaction changes count."""
    released, left = (factory.row(status="HOLD") for _ in range(2))
    waiting = factory.row()
    with logins.session("reviewer") as reviewer:
        [[audit]] = reviewer.execute(BEGIN, ("release", '{"transport": "x"}')).fetchall()
        with reviewer.transaction():
            reviewer.execute("SELECT pillarbox.audit_remember(%s, %s::bigint[])", (audit, [released, left, waiting]))
            reviewer.execute("UPDATE queue SET status = 'DELIVER' WHERE id = %s", (released,))
            reviewer.execute("UPDATE queue SET status = 'HOLD' WHERE id = %s", (left,))  # written, and as it was
            assert reviewer.execute(ADD, (audit, [released, left, waiting], 3)).fetchone() == (1,)
        # Later, after another change of the row: that was another transaction's work.
        factory.move([left], "DELIVER")
        assert reviewer.execute(ADD, (audit, [left, waiting], 0)).fetchone() == (0,)
        reviewer.execute("SELECT pillarbox.audit_finish(%s)", (audit,))
        who = reviewer.info.user
        with pytest.raises(psycopg.errors.InsufficientPrivilege):  # it has ended
            reviewer.execute("SELECT pillarbox.audit_remember(%s, %s::bigint[])", (audit, [waiting]))
    [line] = operator.lines("audit", str(audit))
    assert (line["done"], line["skipped"], line["who"]) == (1, 2, who)
    factory.sql("UPDATE pillarbox.queue SET transportid = 'better'")
    assert operator.json("undo", str(audit), "--yes")["done"] == 1
    assert {row.id: (row.status, row.transportid) for row in factory.queue()} == {
        released: ("HOLD", "better"),
        left: ("DELIVER", "better"),
        waiting: ("DELIVER", "better"),
    }


def test_a_role_cannot_extend_the_audit_record_of_another(
    factory: Factory, logins: Logins, operator: Pillarbox
) -> None:
    held = factory.row(status="HOLD")
    audit = operator.json("release", f"id={held}", "--yes")["audit"]
    with logins.session("reviewer") as first, logins.session("reviewer") as second:
        [[open_]] = first.execute(BEGIN, ("delete", "{}")).fetchall()
        for another, number in ((first, audit), (second, open_)):
            for call in ("audit_remember(%s, '{1}')", "audit_add(%s, '{1}', 1)", "audit_finish(%s)"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    another.execute(f"SELECT pillarbox.{call}".encode(), (number,))
        # An operator's record cannot be marked as undone either, which would prevent its undo.
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            first.execute("SELECT pillarbox.audit_begin('me', 'release', '', '{}', NULL, %s, 1)", (audit,))
    assert operator.json("undo", str(audit), "--yes")["done"] == 1
