"""test_results_agree — code, database and documentation have the same list of results

Owns: the comparison of shared/mail/results.py with the archive's constraint, archive_is_dead, sql/README.md and the
    reference.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from shared.mail.results import DEAD, RESULTS

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory

ROOT = Path(__file__).parents[3]


def test_the_database_accepts_exactly_these_results(factory: Factory) -> None:
    constraint = factory.one(
        """SELECT pg_get_constraintdef(oid) FROM pg_constraint
            WHERE conrelid = 'pillarbox.archive'::regclass AND conname = 'archive_result_check'"""
    )
    assert re.findall("'([a-z_]+)'", constraint) == list(RESULTS)


def test_the_database_has_the_same_dead_results(factory: Factory) -> None:
    rows = factory.sql("SELECT r FROM unnest(%(r)s::text[]) AS r WHERE pillarbox.archive_is_dead(r)", r=list(RESULTS))
    assert tuple(row.r for row in rows) == DEAD
    [index] = factory.sql("SELECT pg_get_indexdef('pillarbox.archive_dead'::regclass) AS text")
    assert set(re.findall("'([a-z_]+)'", index.text)) == set(RESULTS) - set(DEAD)


def test_the_reference_page_lists_the_same_results() -> None:
    page = (ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", page, re.MULTILINE))
    assert rows == {name: "yes" if finish.dead else "no" for name, finish in RESULTS.items()}
    for finish in RESULTS.values():
        assert finish.meaning in page


def test_the_state_page_lists_the_same_results() -> None:
    page = (ROOT / "sql" / "README.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| (yes|no) \|", page, re.MULTILINE))
    assert rows == {name: "yes" if finish.dead else "no" for name, finish in RESULTS.items()}
