"""test_leaf_by_leaf — a call of maintenance looks for overdue mail in a few leaves, and the rounds go through all

Owns: proofs about maintain_renotify_since and maintain_unserved_since with more leaves than a call looks at.
See: sql/schema/15_maintenance.sql; queued/maintain.py; test_size.py for the rows read in one leaf.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from queued import maintain
from queued.maintain import Maintainer
from shared.config.queued.settings import Maintenance

if TYPE_CHECKING:
    from shared.postgres import database as db
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

SOME = 40  # leaves beside the shipped ones
HOUR = timedelta(hours=1)
NAMES = {f"leaf{number:02}" for number in range(SOME)}
LEAVES = "SELECT count(*) FROM pillarbox.maintain_leaves('', NULL)"
NOTED = "SELECT partid FROM pillarbox.unserved"
LOCKED = """SELECT DISTINCT c.relname::text AS leaf FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
             WHERE l.pid = pg_backend_pid() AND c.relkind = 'r' AND c.relname ~ '^queue_def_'"""
CALLS = {
    "renotify": "SELECT reached FROM pillarbox.maintain_renotify_since(now(), '1m', 100, {since}, %(after)s, 5)",
    "unserved": "SELECT reached FROM pillarbox.maintain_unserved_since(now(), '1m', 10, {since}, %(after)s, 5)",
}
#: A look that takes as long as it has leaves to look at, and that of one leaf without an end.
SLOW = """
ALTER FUNCTION pillarbox.maintain_overdue RENAME TO swift;
CREATE FUNCTION pillarbox.maintain_overdue(a timestamptz, b interval, c integer, d timestamptz, e text[])
RETURNS TABLE (leaf text, id bigint, partid text, due timestamptz) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(cardinality(e) * 0.06);
    IF 'queue_def_leaf07' = ANY (e) THEN PERFORM pg_sleep(60); END IF;
    RETURN QUERY SELECT * FROM pillarbox.swift(a, b, c, d, e);
END $$
"""


@pytest.fixture
def split(factory: Factory) -> Factory:
    """A queue of many leaves, with overdue mail in each of them."""
    for name in sorted(NAMES):
        factory.sql("SELECT pillarbox.queue_leaf_create(%(id)s, ARRAY[%(id)s])", id=name)
        factory.row(partid=name, due=-HOUR)
    return factory


@pytest.mark.parametrize("since", ["'-infinity'", "now() - interval '6 minutes'"])
@pytest.mark.parametrize("step", CALLS)
def test_a_call_locks_only_its_leaves_and_the_next_call_continues(split: Factory, step: str, since: str) -> None:
    split.sql("SELECT pillarbox.maintain_unserved(now(), '1m', 10)")
    after: str | None = ""
    seen: list[str] = []
    while after is not None:
        with split.another() as session:
            call = CALLS[step].format(since=since)
            after = (session.execute(call.encode(), {"after": after}).fetchone() or (None,))[0]
            locked = {leaf for (leaf,) in session.execute(LOCKED.encode()).fetchall()}
            session.commit()
        assert len(locked) <= 5
        assert not locked & set(seen)
        seen += sorted(locked)
    assert len(seen) == split.one(LEAVES)
    assert {row.partid for row in split.sql(NOTED)} == NAMES


def test_notes_of_unvisited_leaves_stay(split: Factory) -> None:
    split.sql("SELECT pillarbox.maintain_unserved(now(), '1m', 10)")
    split.sql("UPDATE pillarbox.unserved SET noted = noted - interval '1 hour'")
    split.sql("DELETE FROM pillarbox.queue WHERE metadata->>'_partid' IN ('leaf00', 'leaf39')")
    call = "SELECT reached FROM pillarbox.maintain_unserved_since(now(), '1m', 10, '-infinity', %(after)s, 10)"
    [first] = split.sql(call, after="queue_def_def")  # the shipped leaves come before it
    assert {row.partid for row in split.sql(NOTED)} == NAMES - {"leaf00"}
    split.sql(call, after="queue_def_leaf35")
    assert {row.partid for row in split.sql(NOTED)} == NAMES - {"leaf00", "leaf39"}
    assert first.reached == "queue_def_leaf09"
    assert split.one("SELECT bool_and(noted < now() - interval '50 minutes') FROM pillarbox.unserved")


def test_notes_of_removed_leaves_are_deleted_after_the_last_leaf(split: Factory) -> None:
    """Notes about mail that is in another leaf now keep their time."""
    split.sql("SELECT pillarbox.maintain_unserved(now(), '1m', 10)")
    split.sql("UPDATE pillarbox.unserved SET leaf = 'queue_def_gone', noted = now() - interval '1 hour'")
    split.sql("INSERT INTO pillarbox.unserved VALUES (0, 'queue_def_gone', 'gone', now(), now())")
    call = "SELECT reached FROM pillarbox.maintain_unserved_since(now(), '1m', 10, '-infinity', %(after)s, 20)"
    after: str | None = ""
    for _ in range(3):
        assert split.one("SELECT count(*) FROM pillarbox.unserved") == SOME + 1
        [row] = split.sql(call, after=after)
        after = row.reached
    assert after is None
    assert {row.partid for row in split.sql(NOTED)} == NAMES
    kept = "SELECT bool_and(leaf = 'queue_def_' || partid AND noted < now() - interval '50 minutes')"
    assert split.one(f"{kept} FROM pillarbox.unserved")


async def test_every_leaf_is_visited_although_no_round_is_complete(
    split: Factory, connection: db.Connection, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One leaf for which no time is enough costs the others a round."""
    monkeypatch.setattr(maintain, "_STEP", 0.6)
    split.sql(SLOW)
    split.sql("UPDATE pillarbox.queue SET next_retry = now() - interval '2 minutes'")  # found by a smaller look too
    maintainer = Maintainer("worker", Maintenance())
    rounds = 0
    while rounds < 30:
        rounds += 1
        await maintainer.round_if_elected(connection, whole=not maintainer.more)
        if {row.partid for row in split.sql(NOTED)} == NAMES - {"leaf07"} and not maintainer._looked_to:
            break
    assert {row.partid for row in split.sql(NOTED)} == NAMES - {"leaf07"}
    assert rounds > 2
    assert {failed["step"] for failed in heard.all("maintain.failed")} == {"renotify", "unserved"}
    assert sum(woken["partitions"] for woken in heard.all("maintain.renotified")) >= SOME - 1
    split.sql("UPDATE pillarbox.unserved SET noted = noted - interval '2 minutes'")
    split.sql("DROP FUNCTION pillarbox.maintain_overdue")
    split.sql("ALTER FUNCTION pillarbox.swift RENAME TO maintain_overdue")
    for _ in range(20):
        await maintainer.round_if_elected(connection, whole=not maintainer.more)
        if not maintainer.more:
            break
    assert {row.partid for row in split.sql(NOTED)} == NAMES
    [said, *_] = heard.all("maintain.unserved")
    assert said["recipients"] == SOME - 1
