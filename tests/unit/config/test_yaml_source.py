"""test_yaml_source — YAML becomes plain values with lines, or one clear line for each problem

Owns: examples for shared.config.yaml_source, on real files in a temporary folder, by libyaml and without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import yaml

from shared.config import yaml_source
from shared.config.yaml_source import MOST_BYTES, YamlSource, load_yaml
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Folder:
    """Writes YAML into a file and loads it, or returns the problems with the folder left out."""

    file: Path

    def load(self, text: str | bytes, environ: Mapping[str, str] | None = None) -> YamlSource:
        self.file.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_yaml(self.file, environ or {})

    def problems(self, text: str | bytes, environ: Mapping[str, str] | None = None) -> list[str]:
        with pytest.raises(ConfigError) as refused:
            self.load(text, environ)
        return str(refused.value).replace(str(self.file), "x.yaml").split("\n")


@pytest.fixture(params=[True, False], ids=["libyaml", "pyyaml"])
def folder(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(yaml, "__with_libyaml__", yaml.__with_libyaml__ and request.param)
    return Folder(tmp_path / "x.yaml")


def test_values_have_their_plain_types(folder: Folder) -> None:
    source = folder.load(
        """
        text: hello
        whole: -12
        hex: 0x1F
        octal: 0o17
        decimal: 1.5e3
        truth: [true, False]
        nothing: [~, null, ]
        explicit: !!str 12
        """
    )
    assert source.values == {
        "text": "hello",
        "whole": -12,
        "hex": 31,
        "octal": 15,
        "decimal": 1500.0,
        "truth": [True, False],
        "nothing": [None, None],
        "explicit": "12",
    }


@pytest.mark.parametrize("word", ["on", "off", "yes", "No", "y", "1:30", "2026-01-01", "1_000", ".nan", ".inf"])
def test_yaml_1_1_words_stay_text(folder: Folder, word: str) -> None:
    assert folder.load(f"key: {word}").values == {"key": word}


def test_keys_are_text_as_written(folder: Folder) -> None:
    assert folder.load("{123: a, true: b, null: c, 01: d}").values == {"123": "a", "true": "b", "null": "c", "01": "d"}


def test_keys_and_values_have_their_lines(folder: Folder) -> None:
    source = folder.load("a:\n  b: 1\n  c:\n\n    - x\n    -\n      y: |\n        z\n")
    assert source.line(("a", "b")) == 2
    assert source.line(("a", "c"), of_key=True) == 3
    assert source.line(("a", "c")) == 5
    assert source.line(("a", "c", 0)) == 5
    assert source.line(("a", "c", 1, "y")) == 7


def test_a_missing_key_has_the_line_of_its_nearest_parent(folder: Folder) -> None:
    source = folder.load("# heading\na:\n  - b: 1\n  - b: 2\n")
    assert source.line(("a", 1, "missing", "deeper"), of_key=True) == 4
    assert source.line(("other",)) == 1


def test_anchors_and_merge_keys_are_resolved(folder: Folder) -> None:
    source = folder.load(
        """\
base: &base {size: 1, colour: red}
more: &more {colour: blue, shape: round}
one:
  <<: *base
  size: 2
two:
  <<: [*base, *more]
three: *base
"""
    )
    assert source.values["one"] == {"size": 2, "colour": "red"}
    assert source.values["two"] == {"size": 1, "colour": "red", "shape": "round"}
    assert source.values["three"] == {"size": 1, "colour": "red"}
    assert source.line(("two", "shape")) == 2
    assert source.line(("three",), of_key=True) == 8


def test_environment_variables_are_substituted_and_typed_as_plain_yaml(folder: Folder) -> None:
    source = folder.load(
        """
        port: !Env "${PORT:2525}"
        set: !Env "${SET:nothing}"
        many: !Env "${A:x}/${B:y}"
        uri: !Env "${URI:embedded:}"
        literal: !Env "$5 {not} ours"
        empty: !Env "${NONE:}"
        within: !Env "a${NONE:}b"
        emptied: !Env "${EMPTY:default}"
        truth: !Env ${TRUTH:true}
        list: [!Env "${PORT}"]
        """,
        {"SET": "some: thing", "B": "b", "PORT": "25", "EMPTY": ""},
    )
    assert source.values == {
        "port": 25,
        "set": "some: thing",
        "many": "x/b",
        "uri": "embedded:",
        "literal": "$5 {not} ours",
        "empty": None,
        "within": "ab",
        "emptied": None,
        "truth": True,
        "list": [25],
    }


def test_the_value_of_a_variable_is_not_substituted_again(folder: Folder) -> None:
    assert folder.load('a: !Env "${A}"', {"A": "${B:x}", "B": "b"}).values == {"a": "${B:x}"}


def test_an_unset_variable_without_default_is_reported_with_its_position(folder: Folder) -> None:
    assert folder.problems('a: 1\nb: !Env "${MISSING_ONE}"\nc: !Env "x${ALSO}"\n') == [
        "x.yaml:2:4: the environment variable MISSING_ONE is not set and has no default",
        "x.yaml:3:4: the environment variable ALSO is not set and has no default",
    ]


def test_a_variable_that_is_not_set_is_read_from_the_file_that_its_file_variable_names(
    folder: Folder, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"p%24: word\n")
    files = {"PASSWORD_FILE": str(secret)}
    assert folder.load('a: !Env "u:${PASSWORD}@h"', files).values == {"a": "u:p%24: word@h"}
    assert folder.load('a: !Env "${PASSWORD:default}"', files).values == {"a": "p%24: word"}
    assert folder.load('a: !Env "${PASSWORD}"', files | {"PASSWORD": "other"}).values == {"a": "other"}
    assert folder.load('a: !Env "${PASSWORD:default}"', {"PASSWORD_FILE": ""}).values == {"a": "default"}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"\xff", "it is not UTF-8 text"),
        (bytes(2**20 + 1), "it is larger than 1048576 bytes"),
    ],
)
def test_a_file_of_a_variable_that_cannot_be_read_is_named(
    folder: Folder, tmp_path: Path, content: bytes | None, why: str
) -> None:
    secret = tmp_path / "secret"
    if content is not None:
        secret.write_bytes(content)
    (problem,) = folder.problems('a: 1\nb: !Env "${PASSWORD:x}"', {"PASSWORD_FILE": str(secret)})
    assert problem == f"x.yaml:2:4: PASSWORD_FILE names {secret}, which cannot be read: {why}"


@pytest.mark.parametrize("text", ["${}", "${1A}", "${A-B:x}", "${A", "${A:b", "x${"])
def test_a_broken_substitution_is_refused(folder: Folder, text: str) -> None:
    (problem,) = folder.problems(f'a: !Env "{text}"', {"A": "a"})
    assert problem.startswith("x.yaml:1:4: ")
    assert problem.endswith("allowed: ${VAR} or ${VAR:DEFAULT}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", 'x.yaml:3:1: duplicate key "a", first written on line 1'),
        ("a:\n  1: x\n  '1': y\n", 'x.yaml:3:3: duplicate key "1", first written on line 2'),
        ("a: b: c\n", "x.yaml:1:5: not valid YAML: a second colon in one line; put text that holds a colon in quotes"),
        ("a: [1, 2\n", "x.yaml:1:4: not valid YAML: the [ that opens here is not closed before line 2"),
        ("a: {b: 1\nc: 2\n", "x.yaml:1:4: not valid YAML: the { that opens here is not closed before line 2"),
        ("a: 1\n\tb: 2\n", "x.yaml:2:1: not valid YAML: a tab; allowed: spaces"),
        ("a:\n\tb: 2\n", "x.yaml:2:1: not valid YAML: a tab; allowed: spaces"),
        (
            "a:\n  b: 1\n   c: 2\n",
            "x.yaml:3:4: not valid YAML: indented by 3, but line 2 above has a value already; allowed: 2",
        ),
        ("a:\n  b: 1\n c: 2\n", "x.yaml:3:2: not valid YAML: indented by 1, but its neighbours, from line 1 on, by 0"),
        ("a:\n  - 1\n - 2\n", "x.yaml:3:2: not valid YAML: indented by 1, but its neighbours, from line 1 on, by 0"),
        ("a: 1\n- 2\n", "x.yaml:2:1: not valid YAML: a list entry among keys, which begin on line 1"),
        ("- 1\nb: 2\n", "x.yaml:2:1: not valid YAML: a key among list entries, which begin on line 1"),
        ("a: 1\nb\nc: 2\n", "x.yaml:2:1: not valid YAML: no colon after this key; allowed: key: value"),
        ("a: 1\nb: 'x\nc: 2\n", "x.yaml:2:4: not valid YAML: the quote that opens here is not closed"),
        ('a: "x\nb: 1\nc: "y"\n', "x.yaml:1:4: not valid YAML: the quote that opens here is closed on line 3 only"),
        ("a: @x\n", "x.yaml:1:4: not valid YAML: a value cannot begin with @; put it in quotes"),
        ('a: "\\d"\n', "x.yaml:1:6: not valid YAML: not an escape in double quotes; allowed: \\\\ for a backslash"),
        (
            "a: *nowhere\n",
            "x.yaml:1:4: not valid YAML: *nowhere refers to nothing; put text that begins with * in quotes",
        ),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: not valid YAML: a second document begins here; allowed: one"),
        ("a: !Other x\n", 'x.yaml:1:4: the tag "!Other" is not allowed; allowed: !Env'),
        ("a: !!python/object/apply:os.system [ls]\n", 'x.yaml:1:4: the tag "tag:yaml.org,2002:python/object/'),
        ("a: !Env [x]\n", 'x.yaml:1:4: the tag "!Env" is not allowed here'),
        ("!Env a: x\n", "x.yaml:1:1: a key must be plain text"),
        ("[a, b]: x\n", "x.yaml:1:1: a key must be plain text"),
        ("a: !!int x\n", 'x.yaml:1:4: "x" is not of the type its tag says'),
        ("a: &a [*a]\n", "x.yaml:1:4: the alias contains itself"),
        ("a: &a\n  b: *a\n", "x.yaml:1:4: the alias contains itself"),
        ("a: &a\n  <<: *a\n", "x.yaml:1:4: << takes a mapping, or a list of mappings, that ends somewhere"),
        ("a:\n  <<: [1]\n", "x.yaml:2:8: << takes a mapping"),
        ("a: " + "9" * 5000, "x.yaml:1:4: the number is too long"),
        ("a: b\x00c\n", "x.yaml:1:5: not valid YAML: unprintable character"),
        (b"a: 1\nb: \xff\n", "x.yaml:2:4: is not UTF-8 text"),
        ("", "x.yaml: is empty; allowed: a mapping of keys"),
        ("# only a comment\n", "x.yaml: is empty; allowed: a mapping of keys"),
        ("\n- a\n", "x.yaml:2: is not a mapping of keys at the top level"),
        ("text\n", "x.yaml:1: is not a mapping of keys at the top level"),
        ("a: " + "[" * 20_000, "x.yaml: is nested too deeply to be a configuration"),
        (b"#" * (MOST_BYTES + 1), f"x.yaml: is larger than {MOST_BYTES} bytes"),
    ],
)
def test_each_problem_is_one_line_with_its_position(folder: Folder, text: str | bytes, problem: str) -> None:
    (found,) = folder.problems(text)
    assert found.startswith(problem)


def test_all_problems_are_reported_at_once(folder: Folder) -> None:
    assert len(folder.problems('a: !Env "${NO}"\nb: !X y\na: 2\n')) == 3


@pytest.mark.parametrize("merge", ["[*{0}, *{0}]", "{{<<: [*{0}, *{0}]}}"])
def test_an_alias_bomb_is_refused_soon(folder: Folder, merge: str) -> None:
    levels = ["l0: &l0 {x: 1}"]
    levels += [f"l{n}: &l{n} " + merge.format(f"l{n - 1}") for n in range(1, 64)]
    (problem,) = folder.problems("\n".join(levels))
    assert problem.endswith("aliases unfold to more than 100000 values")


def test_values_that_are_written_out_are_as_many_as_the_file_has_room_for(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yaml_source, "MOST_VALUES", 10)
    assert folder.load(f"a: {list(range(100))}").values["a"] == list(range(100))


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: does not exist"):
        load_yaml(tmp_path / "nowhere.yaml", {})


def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a directory; allowed: a YAML file"):
        load_yaml(tmp_path, {})


def test_an_unreadable_file_is_one_line(tmp_path: Path) -> None:
    loop = tmp_path / "loop.yaml"  # refuses even root, as permissions do not
    loop.symlink_to(loop)
    with pytest.raises(ConfigError, match=r"loop\.yaml: cannot be read: Too many levels of symbolic links"):
        load_yaml(loop, {})


def test_a_byte_order_mark_is_not_part_of_the_first_key(folder: Folder) -> None:
    assert folder.load(b"\xef\xbb\xbfa: 1").values == {"a": 1}
