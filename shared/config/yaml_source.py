"""yaml_source — reads one YAML file into plain values that remember their lines

Owns: the only door to PyYAML; the tag `!Env "${VAR:DEFAULT}"`; the part of YAML that we accept.
Guarantees: values are dict (keys always text), list, str, int, float, bool and None; types are those of YAML
1.2's core schema, so that `on`, `yes`, `1:30` and dates stay text; duplicate keys are refused; anchors, aliases
and merge keys work, and their expansion is bounded; nothing in a file can run code. libyaml parses, thirty times as
fast as PyYAML's own parser. That one reads what the two understand differently, says what is wrong with a file that
libyaml refuses, and reads everything where PyYAML was built without libyaml.
`${VAR}` without a default must be set, or VAR_FILE (shared/variables.py); a variable set to the empty text counts as
set; the text after substitution is typed as if it had been written plainly, thus an empty one becomes null.
Raises: ConfigError, one line for each problem: `file:line:column: what`.
See: https://yaml.org/spec/1.2.2/ chapter 10.3; https://docs.halon.io/manual/config.html for `!Env`
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from shared import variables
from shared.config.yaml_faults import Place, Quoted, Report, in_words
from shared.errors import ConfigError
from shared.masking import one_line, show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

type KeyPath = tuple[str | int, ...]
type _Entries = dict[str, tuple[yaml.Node, yaml.Node]]

MOST_BYTES = 16 * 2**20
MOST_VALUES = 100_000  # that aliases say once more: nine lines of YAML can describe a billion values

_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE, _MAP, _SEQ = (
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "merge", "map", "seq")
)
_ENV = "!Env"
# libyaml accepts a tab before a value, counts no column for U+FEFF, and takes "!" without a value for an empty text.
_APART = re.compile(r"[\t\ufeff]|(?<![^\s\[{,])!(?![^\s,])")
_SUBSTITUTION = re.compile(r"\$\{([^}]*)(\}|\Z)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# In this order, because an integer would also do as a float.
_PLAIN: dict[str, tuple[re.Pattern[str], list[str]]] = {
    _NULL: (re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
    _BOOL: (re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")),
    _INT: (re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")),
    _FLOAT: (
        re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
        list("-+.0123456789"),
    ),
    _MERGE: (re.compile(r"^<<$"), ["<"]),
}

_TYPES: dict[str, Callable[[str], object]] = {
    _NULL: lambda _: None,
    _BOOL: lambda text: text.lower() == "true",
    _INT: lambda text: int(text, {"0o": 8, "0x": 16}.get(text[:2], 10)),
    _FLOAT: float,
}


class _Resolver(yaml.resolver.Resolver):
    """The types of YAML 1.2 instead of 1.1."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - typed by PyYAML as an attribute of instances


for _tag, (_pattern, _firsts) in _PLAIN.items():
    _Resolver.add_implicit_resolver(_tag, _pattern, _firsts)


class _Loader(_Resolver, yaml.SafeLoader):
    """PyYAML's own parser."""


if yaml.__with_libyaml__:

    class _Libyaml(yaml.composer.Composer, _Resolver, yaml.CSafeLoader):
        """libyaml's parser. The composer is PyYAML's: libyaml's would overflow the stack where nesting is deep."""

        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)


@dataclass(frozen=True, slots=True)
class YamlSource:
    """One file: its name as given, its values, and for each key path the lines of the key and of the value."""

    file: str
    values: dict[str, object]
    key_lines: Mapping[KeyPath, int] = field(repr=False)
    value_lines: Mapping[KeyPath, int] = field(repr=False)
    inherited: frozenset[KeyPath] = field(default=frozenset(), repr=False)  # places whose values are written elsewhere

    def is_inherited(self, path: KeyPath) -> bool:
        """Whether the value at `path`, or what it is part of, is written in another place."""
        return any(path[:length] in self.inherited for length in range(1, len(path) + 1))

    def line(self, path: KeyPath, *, of_key: bool = False) -> int:
        """The line (from 1) of the value at `path`, or of its key; of the nearest parent if absent."""
        first, second = (self.key_lines, self.value_lines) if of_key else (self.value_lines, self.key_lines)
        for length in range(len(path), -1, -1):
            line = first.get(path[:length]) or second.get(path[:length])
            if line is not None:
                return line
        return 1


def load_yaml(path: Path | str, environ: Mapping[str, str]) -> YamlSource:
    """Reads the file at `path`, substituting `!Env` from `environ`. Raises ConfigError."""
    name = one_line(str(path))
    text = _read(Path(path), name)
    reading = _Reading(name, environ)
    try:
        node = _root(text)
        if node is None:
            raise ConfigError(f"{name}: is empty; allowed: a mapping of keys (see the shipped config/)")
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError(f"{name}:{node.start_mark.line + 1}: is not a mapping of keys at the top level")
        values = reading.mapping(node, ())
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_bad_yaml(name, error, text)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        column = error.position - (text.rfind("\n", 0, error.position) + 1) + 1
        raise ConfigError(f"{name}:{line}:{column}: not valid YAML: unprintable character") from None
    except RecursionError:
        raise ConfigError(f"{name}: is nested too deeply to be a configuration") from None
    if reading.problems:
        raise ConfigError("\n".join(dict.fromkeys(reading.problems)))
    return YamlSource(name, values, reading.key_lines, reading.value_lines)


def _read(path: Path, name: str) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except IsADirectoryError:
        raise ConfigError(f"{name}: is a directory; allowed: a YAML file") from None
    except NotADirectoryError:
        folder = one_line(str(path.parent))
        raise ConfigError(f"{folder}: is a file; allowed: the folder that holds {path.name}") from None
    except FileNotFoundError:
        here = "" if path.is_absolute() else f" in {one_line(str(Path.cwd()))}"
        place = (
            "name its place by --config"
            if path.is_absolute()
            else "run this where it is, or name its place by --config"
        )
        raise ConfigError(f"{name}: does not exist{here}; {place}") from None
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(f"{name}: is larger than {MOST_BYTES} bytes and hardly a configuration")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise ConfigError(f"{name}:{line}:{column}: is not UTF-8 text") from None


def _root(text: str) -> yaml.Node | None:
    """The root node; None if the text is empty. Raises YAMLError, RecursionError."""
    if yaml.__with_libyaml__ and not _APART.search(text):
        with suppress(yaml.YAMLError):
            return _Libyaml(text).get_single_node()
    return _Loader(text).get_single_node()


def _bad_yaml(name: str, error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return f"{name}: not valid YAML: {one_line(error.problem or error.context or 'cannot be parsed')}"
    began = _place(error.context_mark) if error.context_mark else None
    report = Report(error.problem or "", _place(mark), error.context or "", began)
    place, words = in_words(report, text, list(_quoted(text)))
    return f"{name}:{place.line + 1}:{place.column + 1}: not valid YAML: {words}"


def _quoted(text: str) -> Iterator[Quoted]:
    """The texts in quotes up to where the scanner stops."""
    with suppress(yaml.MarkedYAMLError):
        for token in yaml.scan(text, Loader=_Loader):
            if isinstance(token, yaml.ScalarToken) and token.style in {"'", '"'}:
                yield Quoted(_place(token.start_mark), _place(token.end_mark))


def _place(mark: yaml.Mark) -> Place:
    return Place(mark.line, mark.column)


class _Reading:
    """One walk over the nodes of one file; gathers values, lines and problems."""

    def __init__(self, file: str, environ: Mapping[str, str]) -> None:
        self.problems: list[str] = []
        self.key_lines: dict[KeyPath, int] = {}
        self.value_lines: dict[KeyPath, int] = {}
        self._file = file
        self._environ = environ
        self._open: set[int] = set()  # nodes we are inside of, to see aliases that contain themselves
        self._met: set[int] = set()  # nodes
        self._again = 0  # how often one of them was met again, by an alias

    def value(self, node: yaml.Node, path: KeyPath) -> object:
        self._count(node)
        self.value_lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._problem(node, "the alias contains itself")
            return None
        if node.tag not in {_MAP, _SEQ}:
            self._problem(node, f"the tag {show(node.tag)} is not allowed here")
            return None
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        self._open.add(id(node))
        values = [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        self._open.discard(id(node))
        return values

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        entries = self._entries(node)
        self._open.add(id(node))
        values: dict[str, object] = {}
        for name, (key, value) in entries.items():
            self.key_lines[*path, name] = key.start_mark.line + 1
            values[name] = self.value(value, (*path, name))
        self._open.discard(id(node))
        return values

    def _entries(self, node: yaml.MappingNode) -> _Entries:
        """The keys of a mapping with those it merges; its own win, then those merged first."""
        own: _Entries = {}
        merged: _Entries = {}
        self._open.add(id(node))
        for key, value in node.value:
            self._count(key)
            name = self._key(key)
            if name is None:
                continue
            if name in own:
                first = own[name][0].start_mark.line + 1
                self._problem(key, f"duplicate key {show(name)}, first written on line {first}")
                continue
            if value.start_mark.index == value.end_mark.index:  # without a text; libyaml says it is at the next one
                value.start_mark = key.end_mark
            own[name] = (key, value)
            if key.tag == _MERGE:
                for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                    self._count(source)
                    if not isinstance(source, yaml.MappingNode) or id(source) in self._open:
                        self._problem(source, "<< takes a mapping, or a list of mappings, that ends somewhere")
                    else:
                        merged = self._entries(source) | merged
        self._open.discard(id(node))
        return merged | {name: entry for name, entry in own.items() if entry[0].tag != _MERGE}

    def _key(self, key: yaml.Node) -> str | None:
        if isinstance(key, yaml.ScalarNode) and key.tag in {*_PLAIN, _STR}:
            return str(key.value)  # as written: 123 and true are names here
        self._problem(key, "a key must be plain text")
        return None

    def _scalar(self, node: yaml.ScalarNode) -> object:
        tag, text = node.tag, str(node.value)
        if tag == _ENV:
            text = self._substitute(node, text)
            tag = next((tag for tag, (pattern, _) in _PLAIN.items() if pattern.fullmatch(text)), _STR)
        if tag in {_STR, _MERGE}:
            return text
        if tag not in _PLAIN:
            self._problem(node, f"the tag {show(tag)} is not allowed; allowed: {_ENV}")
        elif not _PLAIN[tag][0].fullmatch(text):
            self._problem(node, f"{show(text)} is not of the type its tag says")
        else:
            try:
                return _TYPES[tag](text)
            except ValueError:  # CPython reads no integer above 4300 digits
                self._problem(node, "the number is too long")
        return None

    def _substitute(self, node: yaml.Node, text: str) -> str:
        def replacement(match: re.Match[str]) -> str:
            variable, colon, default = match[1].partition(":")
            if not match[2] or not _VARIABLE.fullmatch(variable):
                self._problem(node, f"{show(match[0])} is not a substitution; allowed: ${{VAR}} or ${{VAR:DEFAULT}}")
                return default
            try:
                found = variables.read(self._environ, variable)
            except variables.UnreadableVariable as error:
                self._problem(node, str(error))
                return default
            if found is None and not colon:
                self._problem(node, f"the environment variable {variable} is not set and has no default")
            return default if found is None else found

        return _SUBSTITUTION.sub(replacement, text)

    def _count(self, node: yaml.Node) -> None:
        self._again += id(node) in self._met
        self._met.add(id(node))
        if self._again > MOST_VALUES:
            line = node.start_mark.line + 1
            raise ConfigError(f"{self._file}:{line}: aliases unfold to more than {MOST_VALUES} values")

    def _problem(self, node: yaml.Node, what: str) -> None:
        mark = node.start_mark
        self.problems.append(f"{self._file}:{mark.line + 1}:{mark.column + 1}: {what}")
