"""test_yaml_parsers — a file means the same with libyaml and without it

Guarantees: where PyYAML's own parser accepts a text, libyaml does too, and values, lines and errors are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from shared.config.yaml_source import YamlSource, load_yaml
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

_TEXTS: Final = (
    "a: 1\nb: [1, 2]\nc:\n  - x\n  - y: z\n",
    "k: |\n  text\n  more\nm: >-\n  fold\n  ed\n",
    "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2\n",
    "s: 'it''s'\nt: \"a\\tb\\x41\\u0042\"\nu: !Env \"${A:b}\"\n",
    "%YAML 1.1\n---\na: b # why\n...\n",
    '? q\n: r\n"w": plain text\n',
)
_PIECES: Final = (
    *":- \n\t?|>'\"[]{},#!%\\@",
    *("- ", "? ", " #", "&a", "*a", "!!str ", "!Env ", "<<: ", "---\n", "...\n", "\r\n"),
    *("ä", "😀", "\u2028", "\x85", "\x07", "\ufeff"),
)
_INSERTED = st.tuples(st.integers(0, 60), st.sampled_from(_PIECES), st.integers(0, 3))


@given(text=st.sampled_from(_TEXTS), changes=st.lists(_INSERTED, max_size=4))
@example(text="a\ufeff: b\nc: 1\n", changes=[])
@example(text="a: \tb\n", changes=[])
@example(text="a: !\n", changes=[])
@example(text="a: {b:\n}\n", changes=[])
@example(text="a: {<<:\n}\n", changes=[])
def test_where_both_accept_a_text_they_read_the_same(
    text: str, changes: list[tuple[int, str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    for at, piece, lost in changes:
        text = text[:at] + piece + text[at + lost :]
    file = tmp_path_factory.getbasetemp() / "parsers.yaml"
    # Without the newline, "? " at the end is numbered by libyaml as if there were one.
    file.write_text(f"{text}\n", encoding="utf-8", newline="")
    by_libyaml, by_pyyaml = _read(file, libyaml=True), _read(file, libyaml=False)
    if by_pyyaml is not None:  # libyaml accepts a little more: [a?, b]
        assert by_libyaml == by_pyyaml


def _read(file: Path, *, libyaml: bool) -> YamlSource | str | None:
    """The values; the errors of what is not allowed here; None where the text is not YAML."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml, "__with_libyaml__", yaml.__with_libyaml__ and libyaml)
        try:
            return load_yaml(file, {})
        except ConfigError as error:
            return None if "not valid YAML" in str(error) else str(error)
