"""test_queries — a query is found by name, and a worker's condition stays inside its parentheses

Owns: examples for shared/postgres/queries.py and for check_condition, on which it relies. The condition is its
    operator's own SQL: the check is about mistakes, not trust.
    Faults that only PostgreSQL can find (an unclosed quote) are in tests/integration/claim/test_condition.py.
"""

from __future__ import annotations

import re

import pytest

from queued.claiming.claim import NOTHING_LOST
from shared.config.where_condition import check_condition
from shared.errors import ConfigError
from shared.masking import show
from shared.postgres.queries import _queries, numbered, query, where_query

GOOD = [
    "true",
    "metadata->>'_partid' IN ('1','2','3')",
    "metadata->>'_partid' IN ('4') OR metadata->>'_partid' IS NULL",
    "(a OR (b AND c))",
    "recipientdomain LIKE '%.example'",
    "recipientlocalpart = 'semi;colon'",
    "recipientlocalpart = 'paren)' OR senderdomain = '(('",
    "recipientlocalpart = 'dash--dash' OR x = '/* no comment */'",
    "recipientlocalpart = 'it''s)'",
    "\"odd;column)\" = 'x'",
    '"double "" quote;" = 1',
    "a - b > 0 OR c / d = 1",
    "a -\n-b = 0",
    r"recipientlocalpart = E'it\'s)'",
    "recipientlocalpart = $$it's)$$ OR x = $a$ $$ ( $a$",
]

BAD = [
    ("true; DROP TABLE queue", '";"'),
    ("true -- and the rest", '"--"'),
    ("true /* and */", '"/\\*"'),
    ("true) OR (true", "do not balance"),
    ("(true", "do not balance"),
    ("true)", "do not balance"),
    (")(", "do not balance"),
    ("", "do not balance"),
    ("   \n", "do not balance"),
    ("x = 'closed' ; --'", '";"'),
    ("x = 'a'')' ) OR (true", "do not balance"),
    ('"a" ) OR (true', "do not balance"),
    (r"E'\'' = x OR true; DROP TABLE queue; SELECT '", '";"'),
    ("$$'$$ = x OR true; DROP TABLE queue; SELECT '", '";"'),
]


@pytest.mark.parametrize("where", GOOD)
def test_a_valid_condition_passes(where: str) -> None:
    check_condition(where)
    assert f"({where.replace('%', '%%')})" in where_query("claim_probe", where)


@pytest.mark.parametrize(("where", "why"), BAD)
def test_a_condition_that_leaves_its_parentheses_is_refused_in_one_line(where: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refusal:
        check_condition(where)
    assert str(refusal.value).startswith(show(where))
    assert "\n" not in str(refusal.value)
    with pytest.raises(ConfigError):
        where_query("claim", where, **NOTHING_LOST)


def test_percent_signs_are_not_parameters() -> None:
    text = where_query("claim_probe", "a LIKE '%s' AND b % 2 = 0 AND c LIKE '%(now)s'")
    assert "a LIKE '%%s' AND b %% 2 = 0 AND c LIKE '%%(now)s'" in text


def test_the_condition_is_inserted_everywhere_in_the_query() -> None:
    text = where_query("claim", "metadata->>'_partid' = '7'", **NOTHING_LOST)
    assert text.count("(metadata->>'_partid' = '7')") == 9
    assert "{where}" not in text


def test_a_query_is_its_text_without_comments() -> None:
    text = query("claim")
    assert text.startswith("WITH urgent_kept AS MATERIALIZED")
    assert "--" not in text
    assert query("claim") is text


@pytest.mark.parametrize("name", ["no_such_query", "CLAIM", ""])
def test_an_unknown_query_is_a_key_error(name: str) -> None:
    with pytest.raises(KeyError):
        query(name)


def test_a_query_with_numbers_is_what_the_driver_makes_of_one_with_names() -> None:
    assert numbered("SELECT %(b)s, %(a)s::text, %(b)s LIKE '5%%'") == (b"SELECT $1, $2::text, $1 LIKE '5%'", ("b", "a"))


@pytest.mark.parametrize("name", sorted(name for name, text in _queries().items() if len(text) > 3500))
def test_every_value_of_a_long_query_is_numbered(name: str) -> None:
    text, names = numbered(query(name))
    assert b"%(" not in text
    assert set(names) == set(re.findall(r"%\((\w+)\)", query(name)))
