"""test_settings_restored — commands that change settings are undone exactly, in any sequence

Owns: the property of operate/settings over random sequences: an undo gives back each row that is as its command left
    it, leaves every other, and names it; undone from the last to the first, everything is as before.
See: sql/README.md, "Changing settings".
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from operate.errors import NotNow, NotThere
from operate.queue.act import By
from operate.settings import schedule, suppress, suspend
from operate.settings.schedule import When
from operate.settings.schedule_mail import Mail
from operate.settings.undo import undo
from operate.shapes.settings import SettingsUndone
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.database.factory import Factory

type Row = dict[str, Any]
type Rows = dict[tuple[str, str], Row]

BY = By(reason="a test")
MOVED = {"next_at", "last_at", "last_message", "evidence", "count"}
SUSPENDED = st.sampled_from([{"destination": ["a.example"]}, {"destination": ["b.example"]}, {}])
WHO = st.sampled_from(["ann", "bob"])
TARGETS = st.lists(st.sampled_from(["a.example", "b.example", "c@c.example"]), min_size=1, max_size=3)
SCHEDULE = st.sampled_from(["daily", "weekly"])
STEPS = st.one_of(
    st.tuples(st.just("suspend add"), SUSPENDED, WHO),
    st.tuples(st.just("suspend remove"), st.none() | st.lists(st.integers(1, 5), min_size=1, max_size=2)),
    st.tuples(st.just("suppress add"), TARGETS),
    st.tuples(st.just("suppress remove"), st.sampled_from(["a.example", "c@c.example"])),
    st.tuples(st.sampled_from(["schedule add", "schedule remove", "schedule enable", "schedule disable"]), SCHEDULE),
    st.tuples(st.just("worker")),
    st.tuples(st.just("undo"), st.integers(0, 3)),
)


class Settings:
    """The three tables, commands on them, and what each command did by what the tables were before and after."""

    def __init__(self, runner: asyncio.Runner, connection: database.Connection, factory: Factory) -> None:
        self._runner, self._connection, self._factory = runner, connection, factory
        self._done: list[tuple[int, dict[tuple[str, str], tuple[Row | None, Row | None]]]] = []
        self.in_order = True

    def start(self) -> Rows:
        """A suspend by a rule, a suppression from a report, a schedule; and nothing recorded."""
        for table in ("audit", "suspends", "suppressions", "schedules"):
            self._factory.sql(f"DELETE FROM pillarbox.{table}")  # noqa: S608
        self._done, self.in_order = [], True
        self._factory.sql("ALTER TABLE pillarbox.suspends ALTER COLUMN id RESTART")
        self._factory.sql("INSERT INTO pillarbox.suspends (selection, reason, who) VALUES ('{}', 'a storm', 'rule')")
        self._factory.sql(
            "INSERT INTO pillarbox.suppressions (target, reason, source, expires, active)"
            " VALUES ('a.example', 'soft', 'bounce', now() + interval '1 day', false)"
        )
        self._factory.sql(
            "INSERT INTO pillarbox.schedules (id, cron, sender, recipients, content, next_at, enabled, error)"
            " VALUES ('daily', '0 9 * * *', 'a@a.example', '{b@b.example}', 'x', now(), false, 'broken')"
        )
        return self.rows()

    def rows(self) -> Rows:
        """Every row, without what workers move on."""
        found: Rows = {}
        for noun, key in (("suspends", "id"), ("suppressions", "target"), ("schedules", "id")):
            for row in self._factory.sql(f"SELECT * FROM pillarbox.{noun}"):  # noqa: S608
                values = {name: value for name, value in row._asdict().items() if name not in MOVED}
                found[noun, str(values[key])] = values
        return found

    def does(self, kind: str, *rest: Any) -> None:
        """One step."""
        if kind == "worker":
            self._factory.sql("UPDATE pillarbox.schedules SET last_at = now(), next_at = next_at + interval '1 day'")
            self._factory.sql("UPDATE pillarbox.suppressions SET count = count + 1, evidence = gen_random_uuid()")
        elif kind == "undo":
            if self._done:
                self.undoes(rest[0] % len(self._done))
        else:
            self._commands(kind, *rest)

    def undoes(self, back: int) -> None:
        """Undo the command that is so many before the last."""
        self.in_order = self.in_order and not back
        audit, changes = self._done.pop(-1 - back)
        wanted, left = self._undone(changes)
        done = self._runner.run(undo(self._connection, BY, audit))
        assert isinstance(done, SettingsUndone)
        assert self.rows() == wanted
        assert (sorted(done.left), done.skipped) == (sorted(left), len(left))
        with pytest.raises(NotNow):
            self._runner.run(undo(self._connection, BY, audit))
        with pytest.raises(NotNow):
            self._runner.run(undo(self._connection, BY, done.audit))

    def undo_the_rest(self) -> None:
        """Undo from the last to the first."""
        while self._done:
            self.undoes(0)

    def _undone(self, changes: dict[tuple[str, str], tuple[Row | None, Row | None]]) -> tuple[Rows, list[str]]:
        """What the tables should be after the undo of these changes, and what it should leave."""
        wanted, left = self.rows(), []
        for (noun, key), (before, after) in changes.items():
            others = [(row["selection"], row["who"]) for (of, _), row in wanted.items() if of == "suspends"]
            taken = noun == "suspends" and before and not after and (before["selection"], before["who"]) in others
            if wanted.get((noun, key)) != after or taken:
                left.append(key)
            elif before is None:
                del wanted[noun, key]
            else:
                wanted[noun, key] = before
        return wanted, left

    def _commands(self, kind: str, *rest: Any) -> None:
        before = self.rows()
        try:
            preview = self._runner.run(self._ask(kind, *rest, dry_run=True))
            assert self.rows() == before
            answer = self._runner.run(self._ask(kind, *rest, dry_run=False))
        except (NotNow, NotThere):
            assert self.rows() == before
            return
        after = self.rows()
        changed = {key for key in {**before, **after} if before.get(key) != after.get(key)}
        assert preview.changed >= len(changed)
        assert {(each.noun, each.key) for each in preview.sample} >= {
            key
            for key in changed
            if key in before  # what is added gets its number later
        }
        self._done.append((answer.audit, {key: (before.get(key), after.get(key)) for key in changed}))

    async def _ask(self, kind: str, what: Any, who: str | None = None, *, dry_run: bool) -> Any:
        connection = self._connection
        if kind == "suspend add":
            return await suspend.add(
                connection, BY, what, reason="x", who=who, seconds=60 if what else None, dry_run=dry_run
            )
        if kind == "suspend remove":
            return await suspend.remove(connection, BY, what, dry_run=dry_run)
        if kind == "suppress add":
            return await suppress.add(connection, BY, what, reason="x", keep=timedelta(days=len(what)), dry_run=dry_run)
        if kind == "suppress remove":
            return await suppress.remove(connection, BY, what, dry_run=dry_run)
        if kind == "schedule add":
            when = When(what, "0 9 * * mon", None, "UTC", "default", 0)
            mail = Mail("a@a.example", ("b@b.example", "c@c.example"), b"Subject: x\r\n\r\n")
            return await schedule.recurring(connection, BY, when, mail, dry_run=dry_run)
        verb = {"schedule remove": schedule.remove, "schedule enable": schedule.enable}.get(kind, schedule.disable)
        return await verb(connection, BY, what, dry_run=dry_run)


@pytest.fixture
def tables(factory: Factory, database: str) -> Iterator[Settings]:
    """The tables of the test's own database."""
    with asyncio.Runner() as runner:
        connection = runner.run(connect(database))
        yield Settings(runner, connection, factory)
        runner.run(connection.close())


async def connect(uri: str) -> database.Connection:
    return await database.connect(uri, "test")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=10))
@example(steps=[("suspend add", {}, "ann"), ("suspend remove", None), ("suspend add", {}, "ann"), ("undo", 1)])
@example(steps=[("suspend remove", [1]), ("worker",), ("undo", 0), ("suspend remove", [1, 5])])
@example(
    steps=[("suppress add", ["a.example", "b.example"]), ("worker",), ("suppress remove", "a.example"), ("undo", 1)]
)
@example(steps=[("schedule enable", "daily"), ("worker",), ("schedule remove", "daily"), ("worker",)])
@example(steps=[("schedule add", "weekly"), ("worker",), ("schedule enable", "weekly")])
def test_each_undo_gives_back_what_is_as_its_command_left_it_and_nothing_else(
    tables: Settings, steps: list[tuple[Any, ...]]
) -> None:
    before = tables.start()
    for step in steps:
        tables.does(*step)
    tables.undo_the_rest()
    if tables.in_order:
        assert tables.rows() == before
