"""test_spool_vanished — the record of accepted mail, and how long it is kept

Owns: examples for shared/spool/vanished.py, `Memory`.
See: tests/chaos/test_failover.py for the question that is asked of a promoted standby.
"""

from __future__ import annotations

from uuid import UUID

from shared.spool.vanished import AcceptedMessages


def ids(first: int, count: int) -> list[UUID]:
    """So many ids in a row."""
    return [UUID(int=number) for number in range(first, first + count)]


def test_accepted_messages_are_remembered_in_order() -> None:
    memory = AcceptedMessages(10)
    memory.add(ids(1, 2), 0.0)
    memory.add(ids(3, 3), 1.0)
    assert (memory.ids(), len(memory)) == (ids(1, 5), 5)


def test_the_oldest_groups_are_forgotten_at_the_limit() -> None:
    memory = AcceptedMessages(5)
    for first in (1, 3, 5, 7):
        memory.add(ids(first, 2), float(first))
    assert memory.ids() == ids(5, 4)
    memory.add(ids(100, 6), 9.0)  # more than fit, at once
    assert memory.ids() == []


def test_a_limit_of_0_remembers_no_message() -> None:
    memory = AcceptedMessages(0)
    memory.add(ids(1, 2), 0.0)
    assert (memory.ids(), len(memory)) == ([], 0)


def test_old_messages_are_forgotten() -> None:
    memory = AcceptedMessages(10)
    memory.add(ids(1, 2), 0.0)
    memory.add(ids(3, 2), 5.0)
    memory.forget_before(5.0)
    assert (memory.ids(), len(memory)) == (ids(3, 2), 2)


def test_reported_messages_are_forgotten() -> None:
    memory = AcceptedMessages(10)
    memory.add(ids(1, 2), 0.0)
    memory.add(ids(3, 2), 1.0)
    memory.forget({*ids(1, 2), *ids(4, 1)})
    assert (memory.ids(), len(memory)) == (ids(3, 1), 1)
