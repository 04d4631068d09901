"""test_output_shapes — every command that prints JSON has a form in the table, and the schema names it

Owns: proofs about scripts/output/commands.py that need no database.
See: tests/integration/commands/test_json.py, which compares what commands print.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from operate.shapes.settings import Configuration
from scripts.cli import parser_of
from scripts.output import records
from scripts.output.commands import COMMANDS, schema_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

#: Servers, and programs with output of their own.
WITHOUT = {"demo", "up", "sendmail", "sink", "collect", "psql", "completion"}


def leaves(parser: argparse.ArgumentParser, *path: str) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command with its parser."""
    under = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not under:
        yield " ".join(path), parser
    for action in under:
        for name, child in action.choices.items():
            yield from leaves(child, *path, name)


def every_command() -> dict[str, argparse.ArgumentParser]:
    return dict(leaves(parser_of()))


def test_every_command_takes_json_and_has_a_form() -> None:
    taking = {name for name, parser in every_command().items() if "--json" in parser._option_string_actions}
    assert taking == set(every_command()) - WITHOUT
    assert taking == set(COMMANDS)


def test_the_schema_has_every_command_and_every_form() -> None:
    schema = json.loads(schema_text())
    assert set(schema["properties"]) == set(COMMANDS)
    for output in COMMANDS.values():
        for form in output.forms:
            assert schema["$defs"][form.__name__]["description"]
            assert "additionalProperties" not in schema["$defs"][form.__name__] or form is Configuration


def test_a_json_line_is_always_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    records.lines([{"name": "grüße\x9b\u202e\n"}])
    said = capsys.readouterr().out
    assert said.isascii()
    assert said.count("\n") == 1
    assert json.loads(said) == {"name": "grüße\x9b\u202e\n"}
