"""test_erase — `pillarbox erase` in PostgreSQL alone: what it refuses, what it shows, who may, and queued mail

Owns: proofs about operate/erase.py, scripts/commands/erase.py and sql/schema/24_erasure.sql.
See: tests/analytics/test_erase.py, for the lake and for kills.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from operate.erase import Person
from operate.errors import Refused
from scripts.output.commands import COMMANDS
from tests.fixtures.database.operating import Pillarbox, write_config
from tests.fixtures.database.principals import agent, principal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

ERASE = ("erase", "Joe@example.com", "--no-lake")


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pillarbox:
    """`pillarbox` on the test's own database."""
    return Pillarbox(write_config(tmp_path / "config", database), capsys)


def joes(factory: Factory, **columns: Any) -> int:
    """A queued recipient whose address is joe@example.com."""
    one = factory.row(**columns)
    factory.sql("UPDATE pillarbox.queue SET recipientlocalpart = 'joe' WHERE id = %(id)s", id=one)
    return one


def finished(factory: Factory, *ids: int) -> None:
    """Finish these recipients, with a try each."""
    factory.move(list(ids), "DELETE")
    factory.sql("SELECT pillarbox.maintain_finish(now(), 'w', 10)")


def test_queued_mail_is_erased_only_if_asked(factory: Factory, command: Pillarbox) -> None:
    other = factory.row()
    to = joes(factory, status="HOLD")
    sent = factory.row()
    factory.sql(
        "UPDATE pillarbox.queue SET senderlocalpart = 'JOE', senderdomain = 'Example.com' WHERE id = %(id)s", id=sent
    )

    command.run(*ERASE, "--yes")
    assert command.status == 1
    assert command.refused == (
        "pillarbox: erase: nothing was changed: 1 recipient queued to the address and 1 from it; "
        "wait for delivery, or --queued deletes them unsent and without notice\n"
    )
    assert [row.id for row in factory.queue()] == [other, to, sent]

    answer = command.json(*ERASE, "--queued", "--yes")
    assert [row.id for row in factory.queue()] == [other]
    assert (answer["queued"], answer["bodies"], answer["lake"]) == (2, 2, None)
    assert factory.archive() == []
    assert len(factory.bodies()) == 1
    assert factory.one("SELECT count(*) FROM pillarbox.notices") == 0


def test_mail_that_a_worker_is_sending_is_not_touched_and_the_same_command_does_the_rest(
    factory: Factory, command: Pillarbox
) -> None:
    sending, waiting = joes(factory), joes(factory)
    factory.lease([sending], ends=timedelta(minutes=1))

    command.run(*ERASE, "--queued", "--yes")
    assert command.status == 1
    assert "1 recipient being sent by a worker at this moment; the same command does the rest" in command.refused
    assert [row.id for row in factory.queue()] == [sending]
    assert waiting not in [row.id for row in factory.queue()]
    begun = factory.one("SELECT max(id) FROM pillarbox.audit WHERE finished IS NULL")

    factory.sql("UPDATE pillarbox.queue SET token = NULL, worker = NULL, lease_until = NULL")
    finished(factory, sending)
    assert factory.archive()[0].recipientlocalpart == "joe"
    assert command.json(*ERASE, "--dry-run")["unfinished"] == begun
    assert command.json(*ERASE, "--yes")["audit"] == begun
    assert factory.archive() == []
    assert factory.one("SELECT count(*) FROM pillarbox.audit WHERE finished IS NULL") == 0


def test_the_preview_counts_and_changes_nothing(factory: Factory, command: Pillarbox) -> None:
    one = joes(factory)
    finished(factory, one)
    shown = command.json(*ERASE, "--dry-run")
    [_, form] = COMMANDS["erase"].forms
    form.model_validate_json(json.dumps(shown))
    assert (shown["sent_to"], shown["sent_from"], shown["queued_to"], shown["lake"]) == (1, 0, 0, None)
    assert "archive: 1 recipient to the address, 0 from it, with their tries" in command.run(*ERASE, "--dry-run")
    assert command.said.endswith("nothing was changed\n")
    assert len(factory.archive()) == 1
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 0


def test_a_body_stays_while_another_recipient_needs_it(factory: Factory, command: Pillarbox) -> None:
    body = factory.message()
    factory.row(message=body)
    joes(factory, message=body)
    answer = command.json(*ERASE, "--queued", "--yes")
    assert (answer["bodies"], answer["kept"]) == (0, 1)
    assert list(factory.bodies()) == [body]


def test_an_address_in_recurring_mail_is_refused(factory: Factory, command: Pillarbox) -> None:
    factory.sql(
        "INSERT INTO pillarbox.schedules (id, cron, sender, recipients, content, next_at)"
        " VALUES ('weekly', '0 0 * * 0', '', '{ann@example.com,joe@example.com}', '', now())"
    )
    command.run(*ERASE, "--yes")
    assert command.refused == (
        "pillarbox: erase: recurring mail names the address: weekly; `pillarbox schedule remove ID` first\n"
    )


def test_an_erased_address_can_be_suppressed_and_let_go_again(factory: Factory, command: Pillarbox) -> None:
    command.run(*ERASE, "--suppress", "--yes")
    [target] = [row.target for row in factory.sql("SELECT target FROM pillarbox.suppressions")]
    assert target.startswith("erased:")
    assert "joe" not in target
    assert command.json(*ERASE, "--dry-run")["suppressed"]
    assert command.lines("suppress", "list")[0]["target"] == target

    assert command.run("suppress", "remove", "joe@example.com").startswith("joe@example.com is removed")
    assert not command.json(*ERASE, "--dry-run")["suppressed"]


def test_only_operators_erase(
    factory: Factory, logins: Logins, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    principal(factory, "ann", "reviewer")
    principal(factory, "olga", "operator")
    command = Pillarbox(write_config(tmp_path / "config", agent(factory, logins, "maintainer")), capsys)
    for asked in ((), ("--as", "ann")):
        command.run(*ERASE, "--yes", *asked)
        assert command.status == 1
        assert "may not erase: only operators may" in command.refused
    assert factory.one("SELECT count(*) FROM pillarbox.audit") == 0

    assert command.json(*ERASE, "--yes", "--as", "olga")["history"] == 0
    assert [(row.who, row.verb) for row in factory.sql("SELECT who, verb FROM pillarbox.audit")] == [("olga", "erase")]


def test_an_address_in_a_text_is_no_other_one() -> None:
    person = Person.of("Joe.o'Brien+x@Example.COM")
    assert person.target == "joe.o'brien+x@example.com"
    said = (
        "<joe.o'brien+x@example.com>, JOE.O'BRIEN+X@EXAMPLE.COM. ajoe.o'brien+x@example.com joe.o'brien+x@example.comx"
    )
    assert person.without(said) == "<(erased)>, (erased). ajoe.o'brien+x@example.com joe.o'brien+x@example.comx"
    with pytest.raises(Refused, match=r'ADDRESS: "example\.com"'):
        Person.of("example.com")
