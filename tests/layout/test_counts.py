"""test_counts — every count with a noun is written by shared/how_many.py, so that singular and plural are right

Guarantees: checks every f-string. It allows limits before a noun: constants, and numbers after words such as
    "more than".
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import pytest

from tests.layout.sources import python_files, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What our sentences count.
_NOUNS: Final = (
    "addresses|attempts|bodies|bytes|changes|characters|commands|commits|conditions|connections|copies|days|domains|entries"
    "|errors|events|fields|files|groups|holds|hosts|hours|ids|keys|leaves|letters|lines|lists|locks|mails|messages"
    "|migrations|minutes|names|notifications|octets|others|parts|partitions|processes|questions|recipients|replies"
    "|results|rows|rules|runs|schedules|seals|seconds|senders|servers|sessions|slots|tables|tests|times|transactions"
    "|transports|tries|users|values|volumes|weeks|workers"
)
_COUNTED: Final = re.compile(rf" (?:[a-z]+ ){{0,2}}(?:{_NOUNS})\b(?!/)")
_LIMIT: Final = re.compile(r"\b(?:than|most|least|up to) $")
#: Where a value is a name, or the word after it is a verb.
_NAME: Final = re.compile(r"name$")
_VERBS: Final = (" holds ", " waits ", " names ", " has hosts ", " runs ")


def counts(text: ast.JoinedStr) -> Iterator[str]:
    """The counts in an f-string that are written without the door."""
    before = ""
    for value, after in zip(text.values, [*text.values[1:], ast.Constant("")], strict=True):
        if isinstance(value, ast.Constant):
            before = str(value.value)
        elif isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant):
            said = str(after.value)
            written = ast.unparse(value.value)
            is_limit = _LIMIT.search(before) or written.isupper()
            if _COUNTED.match(said) and not (said.startswith(_VERBS) or is_limit or _NAME.search(written)):
                yield ast.unparse(text)
            before = ""


def test_every_count_is_written_by_the_door() -> None:
    found = [
        f"{path}:{node.lineno}: {count}"
        for path in python_files("scripts", "httpd", "operate", "smtpd", "queued", "collect", "shared")
        if path.parts[:2] not in {("scripts", "bench"), ("scripts", "dev")}  # their readers are developers
        for node in ast.walk(tree(path))
        if isinstance(node, ast.JoinedStr)
        for count in counts(node)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ('f"{done} of {wanted} recipients"', True),
        ('f"{len(rows)} matching recipients; shown: {shown}"', True),
        ('f"{a} rows and {b}"', True),
        ('f"{rate} rows/s"', False),
        ('f"more than {limit} octets"', False),
        ('f"the first {_MOST} parts"', False),
        ('f"{path} holds no key"', False),
        ("f\"{how_many(n, 'row')} of {table}\"", False),
    ],
)
def test_counts_are_told_from_other_numbers(text: str, *, is_found: bool) -> None:
    [node] = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.JoinedStr)]
    assert bool(list(counts(node))) is is_found
