"""test_walked_pages — every page of docs/ is walked through by a test, and nothing on it is left out without a reason

Owns: proofs that the tables of tests/fixtures/pages are complete, and that commands within sentences exist.
See: tests/integration/pages.
"""

from __future__ import annotations

import argparse
import importlib
import re
from typing import Final

import pytest

from scripts.cli import VERBS
from tests.fixtures.pages.blocks import blocks
from tests.fixtures.pages.readers import ELSEWHERE, READERS
from tests.fixtures.pages.walking import DOCS, NOT_RUN

PAGES: Final = {str(file.relative_to(DOCS)): blocks(file) for file in sorted(DOCS.rglob("*.md"))}
_INLINE: Final = re.compile(r"`pillarbox ([a-z][^`]*)`")


def test_every_page_with_something_to_do_has_a_reader() -> None:
    to_do = {page for page, found in PAGES.items() if {b.language for b in found} & {"sh", "console", "yaml", "sql"}}
    assert READERS.keys() | ELSEWHERE.keys() == to_do
    assert not READERS.keys() & ELSEWHERE.keys()


def test_every_block_has_a_known_language() -> None:
    known = {"sh", "console", "yaml", "sql", "text"}
    programs = {
        "how-to/send/webhooks.md": {"python", "js"},  # tests/integration/pages/test_webhook_verifiers.py runs them
        "how-to/observe/export-history.md": {"python"},  # tests/analytics/test_engines.py runs it
    }
    assert {
        (page, b.line, b.language)
        for page, found in PAGES.items()
        for b in found
        if b.language not in known | programs.get(page, set())
    } == set()


def test_every_exception_of_the_test_is_on_a_page() -> None:
    commands = [c for found in PAGES.values() for b in found if b.language in {"sh", "console"} for c in b.commands()]
    assert [words for words in NOT_RUN if not any(c.startswith(words) for c in commands)] == []


@pytest.mark.parametrize("page", PAGES)
def test_commands_within_sentences_exist(page: str) -> None:
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        for text in _INLINE.findall(line):
            verb, *words = text.split()
            assert verb in VERBS, text
            parser = argparse.ArgumentParser()
            importlib.import_module(f"scripts.{VERBS[verb]}").add_parser(parser.add_subparsers())
            known = _below(parser, [verb, *words])
            for option in (word for word in words if word.startswith("--")):
                assert option.partition("=")[0] in known, text


def _below(parser: argparse.ArgumentParser, words: list[str]) -> set[str]:
    """The options of the command that these words begin with."""
    found = set(parser._option_string_actions)
    verbs = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
    if verbs is None or not words:
        return found
    assert words[0] in verbs.choices, f"{words[0]}; allowed: {', '.join(verbs.choices)}"
    return found | _below(verbs.choices[words[0]], words[1:])
