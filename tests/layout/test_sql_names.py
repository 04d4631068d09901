"""test-sql-names — SQL is found by name and states its purpose; schema and migrations form one unbroken series

Guarantees: each query opens with a sentence and is used; each file of the schema opens with a sentence and makes things
    once, in their final form; migrations are numbered without gaps, each `pre` or `post`; schema and migrations choose
    their search_path before anything else.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from shared.postgres.queries import sections
from tests.layout.sources import PACKAGES, python_files, read, tracked, tree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SCHEMA: Final = re.compile(r"(\d{2})_[a-z]+\.sql")
MIGRATION: Final = re.compile(r"(\d{4})_(pre|post)_[a-z0-9]+(_[a-z0-9]+)*\.sql")


def sql_files(folder: str) -> list[Path]:
    """The .sql files in and below one folder of sql/."""
    return [path for path in tracked() if path.parts[:2] == ("sql", folder) and path.suffix == ".sql"]


def queries() -> list[tuple[str, str]]:
    """The name and text of every query."""
    return [each for path in sql_files("queries") for each in sections(read(path))]


def opens_with_a_sentence(text: str) -> bool:
    """Whether the text begins with a `--` comment with a sentence as its first paragraph."""
    paragraph = []
    for line in text.splitlines():
        if not line.startswith("--") or not line.removeprefix("--").strip():
            break
        paragraph.append(line.removeprefix("--").strip())
    sentence = " ".join(paragraph)
    return len(sentence.split()) > 2 and sentence[0].isupper() and sentence.endswith(".")


def schema_faults(names: Sequence[str]) -> list[str]:
    """The gaps in the numbers of the schema's files, given their names."""
    matches = {name: SCHEMA.fullmatch(name) for name in names}
    found = [f"{name}: not of the form NN_noun.sql" for name, match in matches.items() if not match]
    numbers = sorted(int(match[1]) for match in matches.values() if match)
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"numbers have gaps or repeat: {numbers}")
    return found


def corrections(text: str) -> list[str]:
    """Statements that change the result of another statement: the schema creates everything in its final form."""
    return re.findall(r"(?m)^(?:CREATE OR REPLACE|DROP|ALTER FUNCTION|ALTER TABLE \w+ (?:ADD|DROP|SET)) .*", text)


def migration_faults(names: Sequence[str]) -> list[str]:
    """The gaps in the numbers of migrations, by their names; the first follows the schema, which is number 1."""
    matches = {name: MIGRATION.fullmatch(name) for name in names}
    found = [f"{name}: not of the form NNNN_pre_what.sql or NNNN_post_what.sql" for name, m in matches.items() if not m]
    numbers = sorted(int(match[1]) for match in matches.values() if match)
    if numbers != list(range(2, len(numbers) + 2)):
        found.append(f"numbers have gaps or repeat: {numbers}")
    return found


def chooses_its_search_path(text: str) -> bool:
    """Whether the first statement, but for making the schema, says where names are looked up."""
    statements = re.sub(r"--.*", "", text).replace("CREATE SCHEMA IF NOT EXISTS pillarbox;", "")
    return statements.lstrip().startswith("SET LOCAL search_path = pillarbox;")


def folded_by_language(text: str) -> list[str]:
    """Calls whose result depends on the database's language: lower and upper without COLLATE "C", and ILIKE."""
    bare = re.sub(r"--.*", "", text)
    calls = re.findall(r"\b(?:lower|upper|initcap)\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", bare)
    return [call for call in calls if 'COLLATE "C")' not in call] + re.findall(r"(?i)\bilike\b", bare)


def test_every_query_opens_with_a_sentence_of_purpose() -> None:
    assert [name for name, text in queries() if not opens_with_a_sentence(text)] == []


def test_every_file_of_queries_opens_with_a_sentence_and_query_names_are_unique() -> None:
    assert [str(path) for path in sql_files("queries") if not opens_with_a_sentence(read(path))] == []
    names = [name for name, _ in queries()]
    assert len(names) == len(set(names))


def test_every_query_is_used_by_name_in_the_code() -> None:
    texts = {
        node.value
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert [name for name, _ in queries() if name not in texts] == []


def test_no_statement_folds_letters_as_the_language_of_the_database_does() -> None:
    files = [path for path in tracked() if path.parts[0] == "sql" and path.suffix == ".sql"]
    assert {str(path): found for path in files if (found := folded_by_language(read(path)))} == {}
    assert [str(path) for path in python_files(*PACKAGES) if re.search(r"\bILIKE\b", read(path))] == []


def test_migrations_are_numbered_without_gaps() -> None:
    assert migration_faults([path.name for path in sql_files("migrations")]) == []


def test_files_of_the_schema_are_numbered_without_gaps() -> None:
    names = [path.name for path in sql_files("schema")]
    assert names, "sql/schema is empty"
    assert schema_faults(names) == []


def test_every_file_of_the_schema_opens_with_a_sentence_and_corrects_no_other() -> None:
    texts = {str(path): read(path) for path in sql_files("schema")}
    assert [name for name, text in texts.items() if not opens_with_a_sentence(text)] == []
    assert {name: found for name, text in texts.items() if (found := corrections(text))} == {}


def test_every_migration_chooses_its_search_path() -> None:
    paths = [*sql_files("schema"), *sql_files("migrations")]
    assert [str(path) for path in paths if not chooses_its_search_path(read(path))] == []


@pytest.mark.parametrize(
    "text",
    ["CREATE TABLE a ();", "CREATE TABLE a ();\nSET LOCAL search_path = pillarbox;", "SET search_path = pillarbox;"],
)
def test_a_migration_without_search_path_is_found(text: str) -> None:
    assert not chooses_its_search_path(text)


@pytest.mark.parametrize(
    "text", ["SELECT 1", "-- claim\nSELECT 1", "--\n-- Takes due rows.\nSELECT 1", "-- Takes due rows"]
)
def test_a_query_without_a_sentence_is_found(text: str) -> None:
    assert not opens_with_a_sentence(text)


@pytest.mark.parametrize(
    "text", ["lower(a)", "upper(coalesce(f(x), ''))", "SELECT a ILIKE 'x'", 'lower(a) = lower(b COLLATE "C")']
)
def test_a_letter_folded_by_language_is_found(text: str) -> None:
    assert len(folded_by_language(text)) == 1
    assert folded_by_language(f"-- {text}") == []


@pytest.mark.parametrize(
    "names",
    [
        ["0001_pre_more.sql"],
        ["0002_pre_more.sql", "0004_post_most.sql"],
        ["0002_pre_more.sql", "0002_post_most.sql"],
        ["0002_more.sql"],
        ["2_pre_more.sql"],
    ],
)
def test_a_gap_in_the_migrations_is_found(names: list[str]) -> None:
    assert migration_faults(names) != []


@pytest.mark.parametrize("names", [["01_queue.sql", "03_leaf.sql"], ["01_queue.sql", "01_leaf.sql"], ["queue.sql"]])
def test_a_gap_in_the_schema_is_found(names: list[str]) -> None:
    assert schema_faults(names) != []


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE queue ADD COLUMN noticed timestamptz;",
        "CREATE OR REPLACE FUNCTION kept(span interval)",
        "DROP INDEX queue_due;",
    ],
)
def test_a_correction_in_the_schema_is_found(text: str) -> None:
    assert corrections(text) == [text]
