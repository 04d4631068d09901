"""test_hints — a hint is sent where its workers listen, and no received hint does harm

Owns: the laws of shared/mail/partition.py's channels, of their twin in SQL, and of parsed payloads.
See: sql/schema/01_setting.sql; scripts/deadletters/watch.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from scripts.deadletters.watch import announced
from shared.mail.partition import ALL_CHANNELS, GENERAL, channel, channels

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

IDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
ANY_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=200)
SEVERAL = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
LONGEST_NAME = 63  # of PostgreSQL
PARTID = "metadata->>'_partid'"


@SEVERAL
@given(st.lists(IDS | ANY_TEXT, min_size=20, max_size=40))
@example(["", "1", "x" * 10_000, "größe", "' OR true --", "\U0001f4ee"])
def test_sql_and_python_agree_about_the_channel(factory: Factory, partids: list[str]) -> None:
    rows = factory.sql(
        """SELECT pillarbox.partition_channel(p) AS channel
             FROM unnest(%(partids)s::text[]) WITH ORDINALITY AS u(p, n) ORDER BY n""",
        partids=partids,
    )
    assert [row.channel for row in rows] == [channel(partid) for partid in partids]
    assert factory.one("SELECT pillarbox.partition_channel(NULL)") == channel(None)


@given(ANY_TEXT)
def test_every_channel_is_in_the_list_of_all_channels(partid: str) -> None:
    assert channel(partid) in ALL_CHANNELS
    assert all(len(name) <= LONGEST_NAME for name in {GENERAL, *ALL_CHANNELS})


@given(st.lists(IDS, min_size=1, max_size=6), st.booleans(), st.sampled_from(["in", "equal", "or"]))
def test_a_worker_listens_where_each_of_its_ids_is_notified(ids: list[str], no_id: bool, form: str) -> None:  # noqa: FBT001 - hypothesis gives it
    listed = ", ".join(f"'{partid}'" for partid in ids)
    where = {
        "in": f"{PARTID} IN ({listed})",
        "equal": " OR ".join(f"{PARTID} = '{partid}'" for partid in ids),
        "or": f"({PARTID} = '{ids[0]}' or ({PARTID} in ({listed})))",
    }[form] + (f" OR {PARTID} IS NULL" if no_id else "")
    assert channels(where) == {channel(partid) for partid in ids} | ({channel(None)} if no_id else set())


@pytest.mark.parametrize(
    "where",
    [
        "true",
        f"{PARTID} NOT IN ('1')",
        f"NOT ({PARTID} = '1')",
        f"{PARTID} <> '1'",
        f"{PARTID} LIKE '7%'",
        f"{PARTID} = '1' OR priority > 5",
        f"({PARTID})::integer <= 3",
        f"{PARTID} = E'1'",
        f"{PARTID} = '1' || '2'",
        f"{PARTID} IS NOT NULL",
        f"coalesce({PARTID}, '1') = '1'",
        f"{PARTID} = 'it''s'",
    ],
)
def test_a_worker_without_named_ids_listens_to_all_channels(where: str) -> None:
    assert channels(where) == ALL_CHANNELS


@given(st.lists(st.text(max_size=30) | st.integers(-1, 1 << 65).map(str), max_size=10))
@example(["²", "٣", "1²", "9" * 5000, "\n1"])
def test_only_ids_are_read_from_any_payloads(payloads: list[str]) -> None:
    ids = announced(payloads)
    assert all(0 <= id_ < 1 << 63 for id_ in ids)
    assert {str(id_) for id_ in ids} <= {payload.lstrip("0") or "0" for payload in payloads}
