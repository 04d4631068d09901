"""test_refcount_races — sessions that add and remove recipients of one body during the sweep

Owns: proofs that no order of events loses a needed body or keeps an unneeded one.
See: sql/README.md, "Counting bodies"; test_refcount.py for one session at a time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.mail.message import new_message_id
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from uuid import UUID

    from tests.fixtures.database.factory import Factory

ADD = "INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain) VALUES (%s, 'r', 'example.com')"


def adding_late(factory: Factory, message: UUID) -> tuple[threading.Thread, list[BaseException]]:
    """A session named late that will add a recipient, not started yet, and its errors."""
    refused: list[BaseException] = []

    def add() -> None:
        with factory.another("late") as session:
            try:
                session.execute(ADD, (message,))
                session.commit()
            except psycopg.Error as error:
                refused.append(error)

    return threading.Thread(target=add), refused


async def test_two_concurrent_deletes_of_the_last_recipients_release_the_body(factory: Factory) -> None:
    """Each sees the other's recipient and so leaves the count to it: the later one must come to none."""
    message = factory.message()
    first, second = factory.rows(2, message=message)

    def finish() -> None:
        with factory.another("second") as session:
            session.execute("DELETE FROM pillarbox.queue WHERE id = %s", (second,))
            session.commit()

    finishing = threading.Thread(target=finish)
    with factory.another("first") as session:
        session.execute("DELETE FROM pillarbox.queue WHERE id = %s", (first,))
        finishing.start()
        await until(lambda: factory.waiting("second"), "the second to wait for the first's count")
        session.commit()
    finishing.join(20)
    assert not finishing.is_alive()
    body = factory.bodies()[message]
    assert (body.refcount, body.counted, body.released is None) == (0, 0, False)


async def test_a_body_that_is_being_swept_gets_no_recipient(factory: Factory) -> None:
    message = factory.message()
    factory.sql("INSERT INTO pillarbox.released VALUES (%(id)s, now() - interval '1 hour')", id=message)
    requeuing, refused = adding_late(factory, message)
    with factory.another("sweep") as session:
        session.execute("SELECT pillarbox.maintain_sweep(now(), '1m', '0s', 10)")
        requeuing.start()
        await until(lambda: factory.waiting("late"), "the recipient to wait for the sweep")
        session.commit()
    requeuing.join(20)
    assert [type(error) for error in refused] == [psycopg.errors.ForeignKeyViolation]
    assert factory.bodies() == {}
    assert factory.sql("SELECT 1 FROM pillarbox.refcounts") == []


def test_a_body_that_gets_a_recipient_in_time_is_not_swept(factory: Factory) -> None:
    message = factory.message()
    factory.sql("INSERT INTO pillarbox.released VALUES (%(id)s, now() - interval '1 hour')", id=message)
    with factory.another("late") as session:
        session.execute(ADD, (message,))
        assert factory.one("SELECT pillarbox.maintain_sweep(now(), '1m', '0s', 10)") == 0
        session.commit()
    assert factory.sql("SELECT 1 FROM pillarbox.released") == []
    assert factory.one("SELECT pillarbox.maintain_sweep(now(), '0s', '0s', 10)") == 0
    assert all(body.refcount == body.counted for body in factory.bodies().values())


def test_the_sweep_refuses_a_snapshot_that_may_be_older_than_its_locks(factory: Factory) -> None:
    with factory.another("sweep") as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.errors.InvalidTransactionState):
            session.execute("SELECT pillarbox.maintain_sweep(now(), '1m', '0s', 10)")


async def test_a_body_with_a_short_lived_first_recipient_is_locked_or_gone(factory: Factory) -> None:
    """It is committed while a second session waits for its count: that session has not locked it against the sweep."""
    message = new_message_id()
    adding, refused = adding_late(factory, message)
    with factory.another("first") as session:
        session.execute("INSERT INTO pillarbox.messages (id, size, content) VALUES (%s, 1, 'x')", (message,))
        session.execute(ADD, (message,))
        session.execute("DELETE FROM pillarbox.queue")
        adding.start()
        await until(lambda: factory.waiting("late"), "the second to wait for the first's count")
        session.commit()
    adding.join(20)
    assert [type(error) for error in refused] == [psycopg.errors.ForeignKeyViolation]
    assert factory.one("SELECT pillarbox.maintain_sweep(now() + interval '1 hour', '1m', '0s', 10)") == 1
    assert factory.bodies() == {}


def test_a_new_body_that_loses_and_gets_a_recipient_is_not_released(factory: Factory) -> None:
    message = factory.message()
    with factory.another() as session:
        for _ in range(2):
            session.execute("DELETE FROM pillarbox.queue")
            session.execute(ADD, (message,))
        session.commit()
    body = factory.bodies()[message]
    assert (body.refcount, body.released) == (1, None)
