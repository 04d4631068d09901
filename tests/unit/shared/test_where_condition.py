"""test_where_condition — the names and keys that a WHERE condition may contain before PostgreSQL parses it

Owns: names of other schemas, hidden behind every kind of quote; text that only looks like one; mistaken keys of
    metadata.
See: shared/config/where_condition.py; tests/unit/shared/test_queries.py for parentheses, comments and semicolons;
    tests/integration/doctor/test_conditions.py for conditions that PostgreSQL refuses.
"""

from __future__ import annotations

import pytest

from shared.config.where_condition import fault, mistaken_key
from tests.fixtures.processor import least_seconds

OF_OTHERS = [
    "evil.f(id) = 1",
    "evil . f(id) = 1",
    "evil.\nf(id) = 1",
    'evil."f"(id) = 1',
    '"evil".f(id) = 1',
    "pillarbox.evil.f(id) = 1",
    "PG_CATALOG.evil.f(id) = 1",
    "id OPERATOR(evil.=) 1",
    "id::evil.t = 1",
    "'{x}'::evil.t[] IS NULL",
    "recipientdomain COLLATE evil.\"C\" = 'x'",
    "q.id = 1",
    "queue.* IS NULL",
    "(metadata).f IS NULL",
    'U&"evi\\006c".f(id) = 1',
    "U&\"pillarbox!0041\" UESCAPE '!' .f(id) = 1",
    "évil.f(id) = 1",
    # The second quote ends the string for PostgreSQL, or does not.
    r"E'\'' = '{x}'::evil.t OR 'a' = 'b'",
    "E'a'\n'\\'' = '{x}'::evil.t OR 'a' = 'b'",
    "e'a' \t\r\n '\\\\' = '{x}'::evil.t OR 'a' = 'b'",
    r"'\' = '{x}'::evil.t OR 'a' = 'b'",
    r"nE'\' = '{x}'::evil.t OR 'a' = 'b'",
    r"éE'\' = '{x}'::evil.t OR 'a' = 'b'",
    "$$'$$ = '{x}'::evil.t OR 'a' = 'b'",
    "$a$ $$ ' $a$ = '{x}'::evil.t OR 'a' = 'b'",
    "a$$ = '{x}'::evil.t OR 'b' = $$",
    "1$$'$$ = '{x}'::evil.t OR 'a' = 'b'",
    "\"'\" = '{x}'::evil.t OR \"'\" = 'b'",
]
OF_OURS = [
    "pillarbox.partition_id(recipientdomain, 6) = '1'",
    "pg_catalog.lower(recipientdomain) = 'x'",
    "Pg_Catalog . lower(recipientdomain) = 'x'",
    "id OPERATOR(pg_catalog.=) 1",
    "recipientdomain = 'evil.example'",
    r"recipientdomain ~ '\.example$'",
    r"recipientdomain ~ E'\\.example\'s.x'",
    "recipientdomain = $$evil.example$$ OR recipientdomain = $a$evil.$$example$a$",
    "priority > 1.5 AND priority < .5 OR priority = 1. OR priority = 1.5e1",
    "\"evil.f\" = 'x'",
]


@pytest.mark.parametrize("where", OF_OTHERS)
def test_a_name_of_another_schema_is_found(where: str) -> None:
    found = fault(where)
    assert found is not None
    assert "only pg_catalog or pillarbox may stand before a dot" in found


@pytest.mark.parametrize("where", OF_OURS)
def test_dots_in_strings_numbers_and_our_own_names_are_allowed(where: str) -> None:
    assert fault(where) is None


@pytest.mark.parametrize("where", ["", "true)", "true; SELECT 1", "true -- all", "true /* all */"])
def test_text_that_is_not_one_condition_is_reported_first(where: str) -> None:
    assert "condition" in (fault(where) or "")


@pytest.mark.parametrize("part", ["'", "E'\\'", "E'a'\n", "$", "$a", "$a$", '"', "1.", "e", "\n", "E'\n", "'\n"])
def test_a_condition_is_checked_in_linear_time(part: str) -> None:
    assert least_seconds(lambda: fault(part * 100_000)) < 5


@pytest.mark.parametrize(
    ("where", "mistake"),
    [
        ("metadata->>'_partit' IN ('1')", "metadata has no key _partit; allowed: _body, "),
        ("q.metadata ->> '_partit' = '1'", "; did you mean _partid?"),
        ("metadata ? '_quarantine'", "; did you mean _quarantineid?"),
        (
            "metadata->'_partid' IN ('1', '2')",
            "metadata->'_partid' is JSON and compared with text; allowed: metadata->>'_partid'",
        ),
        ("NOT (metadata->'_partid') NOT IN ('1')", "is JSON and compared with text"),
        ("metadata->'tenant' = '7'", "is JSON and compared with text"),
        ("priority > 0 OR metadata -> 'tenant' <> 'acme'", "is JSON and compared with text"),
    ],
)
def test_a_mistaken_key_is_found(where: str, mistake: str) -> None:
    assert mistake in (mistaken_key(where) or "")


@pytest.mark.parametrize(
    "where",
    [
        "true",
        "metadata->>'_partid' IN ('1','2') OR metadata->>'_partid' IS NULL",
        "metadata->>'tenat' = 'x'",  # a key of an application may have any name
        "metadata->'tenant' = '\"acme\"'",
        "metadata->'tenant'->>'id' = '7'",
        "metadata->'_dsn'->>'envid' = 'x'",
        "metadata->'tenant' IS NOT NULL",
        "recipientlocalpart = 'metadata->>''_partit'' = 1'",
        "recipientlocalpart LIKE '\\_%'",
    ],
)
def test_a_key_that_may_exist_is_allowed(where: str) -> None:
    assert mistaken_key(where) is None
