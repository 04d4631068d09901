"""test_condition_meaning — a compiled condition finds the same rows in PostgreSQL as its evaluation in Python

Owns: the comparison, over random rows of every state and random conditions.
See: tests/fixtures/queue/condition_meaning.py; tests/property/queue/test_condition_language.py for the language alone.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.rows import namedtuple_row
from psycopg.types.json import Jsonb

from operate.condition.compile import compiled
from shared.config.condition.fields import FIELDS, STATES
from shared.config.condition.read import read
from shared.config.units import parse_duration
from tests.fixtures.database.factory import Factory
from tests.fixtures.queue.condition_meaning import fits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.fixtures.servers.postgres import ServerUnderTest

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
ROWS = 400

WORDS = ("a", "A", "b%", "a_c", "\\", "x y", "o'k", "Ann", "1")
HOSTS = ("b.example", "sub.b.example", "c_d.example", "bxexample")
BACK = ("-3d", "-1d", "-2h", "-1h", "-90s", "0s", "10m", "1h")  # from now
AHEAD = ("-1d", "-1s", "0s", "90s", "1h", "2d")
COLUMNS = (
    *("messages__id", "status", "ts", "senderip", "senderhelo", "saslusername", "serverid", "senderlocalpart"),
    *("senderdomain", "recipientlocalpart", "recipientdomain", "size", "metadata", "transportid", "jobid", "priority"),
    *("retry_count", "next_retry", "last_retry", "last_error", "token", "worker", "lease_until"),
)


def drawn_row(random: Random) -> tuple[Any, ...]:
    """One row for COLUMNS, in which anything may be missing that may be."""

    def perhaps(values: Sequence[Any]) -> Any:
        return random.choice([None, *values])

    def time(offsets: Sequence[str]) -> datetime:
        offset = random.choice(offsets)
        span = parse_duration(offset.removeprefix("-"))
        return NOW - span if offset.startswith("-") else NOW + span

    metadata = {key: perhaps(WORDS) for key in ("_partid", "campaign", "_quarantineid", "_holdreason")}
    metadata["_heldat"] = perhaps([time(BACK).isoformat()])
    sender = random.choice([(None, None), (random.choice(WORDS), random.choice(HOSTS))])
    return (
        UUID(int=random.randint(1, 3)),
        random.choice(("HOLD", "DELIVER", "DELIVER")),
        time(BACK),
        perhaps(["192.0.2.1", "192.0.2.25"]),
        *(perhaps(WORDS) for _ in ("senderhelo", "saslusername")),
        "mx",
        *sender,
        random.choice(WORDS),
        random.choice(HOSTS),
        random.choice((0, 512, 10240, 1048576)),
        perhaps([Jsonb({key: value for key, value in metadata.items() if value is not None})]),
        random.choice(("default", "slow")),
        perhaps(WORDS),
        random.randint(-9, 9),
        random.randint(0, 4),
        time(AHEAD),
        perhaps([time(BACK)]),
        perhaps([f"451 {random.choice(WORDS)}"]),
        *random.choice([(None, None, None), (1, random.choice(WORDS), time(AHEAD))]),
    )


TEXTS = (
    *("a", "A", "ann", '"b%"', "b*", "*", '"*"', "a_c", r"'\\'", '"x y"', '"o\'k"', "1", "mx", "default", "192.0.2.*"),
    *("b.example", "*.b.example", "B.example", "*.example", "451*", ""),
)
ADDRESSES = (
    *("a@b.example", "A@B.example", "@b.example", "*@*.example", "*@b.example", "a*@*", "<>", "*b.example", "*"),
    *("", '"*@b.example"', "@sub.*"),
)
CONTAINED = ("a", "N", '"%"', "_", r"'\\'", "example", "451", "@b", '" "')
DURATIONS = ("0s", "90s", "1h", "1h..2h", "..90s", "1d..", "0s..10m", "3d")
TIMES = ("2026-11-21", "2026-11-20", "now", "now-1h", "now-2h..now", "2026-11-21T11:00..", "..now+10m", "now+1h", "")
VALUES: dict[str, tuple[str, ...]] = {
    "text": TEXTS,
    "domain": TEXTS,
    "address": ADDRESSES,
    "number": ("0", "3", "1..3", "..2", "4..", "9"),
    "size": ("0", "512", "10KiB", "512..10KiB", "..512", "1MiB"),
    "time": TIMES,
    "age": DURATIONS,
    "wait": DURATIONS,
    "state": STATES,
    "msgid": ("a@b.example", "<a@b.example>", '"<A,%@b.example>"', "*@b.example", '"*"', "a*", ""),
    "uuid": ("00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000009"),
}
NAMES = (*FIELDS, "metadata.campaign")
ORDERED = frozenset({"number", "size", "time", "age", "wait"})


def forms(name: str) -> list[tuple[str, str]]:
    """Every operator that a field knows with every value that may stand after it."""
    kind = FIELDS[name].kind if name in FIELDS else "text"
    single = [value for value in VALUES[kind] if value and ".." not in value]
    made = [(operator, value) for operator in ("=", "!=") for value in VALUES[kind]]
    if kind in {"text", "domain", "address", "msgid"}:
        made += [(operator, value) for operator in ("~", "!~") for value in CONTAINED]
    if kind in ORDERED:
        made += [(operator, value) for operator in ("<", "<=", ">", ">=") for value in single]
    return made


@st.composite
def terms(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(NAMES))
    operator, value = draw(st.sampled_from(forms(name)))
    if operator not in {"=", "!="}:
        return f"{name}{operator}{value}"
    more = draw(st.lists(st.sampled_from([other for sign, other in forms(name) if sign == "=" and other]), max_size=2))
    return f"{name}{operator}{','.join([value, *more] if value else [value])}"


CONDITIONS = st.recursive(
    terms(),
    lambda inner: (
        st.builds("({}) or ({})".format, inner, inner)
        | st.builds("({}) ({})".format, inner, inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def drawn(server: ServerUnderTest, template_database: str) -> Iterator[tuple[Factory, list[Any]]]:
    """A queue of random rows in every state."""
    random = Random(7)
    with (
        server.fresh_database(template=template_database) as uri,
        psycopg.connect(uri, autocommit=True, row_factory=namedtuple_row, prepare_threshold=None) as connection,
    ):
        factory = Factory(uri, connection)
        named = [("a@b.example", "x y"), ("A,%@b.example", "Ann 1"), (None, None)]
        for number, (msgid, subject) in enumerate(named, 1):
            factory.message(id=UUID(int=number))
            factory.sql(
                "UPDATE pillarbox.messages SET msgid = %(msgid)s, subject = %(subject)s WHERE id = %(id)s",
                msgid=msgid,
                subject=subject,
                id=UUID(int=number),
            )
        values = ", ".join(["%s"] * len(COLUMNS))
        insert = f"INSERT INTO pillarbox.queue ({', '.join(COLUMNS)}) VALUES ({values})"  # noqa: S608 - of names above
        with connection.cursor() as cursor:
            cursor.executemany(insert.encode(), [drawn_row(random) for _ in range(ROWS)])
        factory.move([row.id for row in factory.queue() if row.id % 11 == 0], "DELETE")
        factory.move([row.id for row in factory.queue() if row.id % 13 == 0 and row.id % 11], "BOUNCE")
        yield (
            factory,
            factory.sql(
                """SELECT q.*, q.metadata->>'_partid' AS partid, m.msgid, m.subject
                     FROM pillarbox.queue q JOIN pillarbox.messages m ON m.id = q.messages__id ORDER BY q.id"""
            ),
        )


def found(factory: Factory, condition: str, now: datetime = NOW) -> set[int]:
    made_of = compiled(read(condition), now)
    text = "SELECT q.id FROM pillarbox.queue q WHERE {condition}".replace("{condition}", made_of.text)
    return {row.id for row in factory.sql(text, **made_of.values)}


@pytest.mark.parametrize("name", NAMES)
def test_every_comparison_of_every_field_means_the_same_rows(drawn: tuple[Factory, list[Any]], name: str) -> None:
    factory, rows = drawn
    for operator, value in forms(name):
        condition = f"{name}{operator}{value}"
        expected = {row.id for row in rows if fits(read(condition), row, NOW)}
        assert found(factory, condition) == expected, condition


@settings(max_examples=200)
@given(condition=CONDITIONS)
def test_postgresql_and_python_select_the_same_rows(drawn: tuple[Factory, list[Any]], condition: str) -> None:
    factory, rows = drawn
    expected = {row.id for row in rows if fits(read(condition), row, NOW)}
    assert found(factory, condition) == expected


@pytest.mark.parametrize("state", STATES)
def test_every_state_occurs_and_every_row_is_in_one(drawn: tuple[Factory, list[Any]], state: str) -> None:
    factory, rows = drawn
    assert found(factory, f"state={state}")
    others = ",".join(other for other in STATES if other != state)
    assert found(factory, f"state!={others}") == found(factory, f"state={state}")
    assert len(found(factory, f"state={','.join(STATES)}")) == len(rows)
