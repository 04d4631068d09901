"""configuration — our YAML files as daemons read them: each key with its value, and the line where to change it

Guarantees: reads only. A value under a name of a secret, and a password within a URI, is masked. What a file leaves
    out has its default, with the sentence of the reference.
Raises: ConfigError for a file that cannot be used; each line names file, line and what is allowed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shared.config.json_schema import SCHEMAS, keys
from shared.config.validate import validated
from shared.config.yaml_source import load_yaml
from shared.masking import mask, names_secret, show

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.config.yaml_source import KeyPath

_LONGEST: Final = 500  # characters of a value


class Given(NamedTuple):
    """A key of a file. meaning: of the reference; empty for what one chooses oneself, such as a rule's condition."""

    path: str
    value: str
    line: int
    meaning: str


class File(NamedTuple):
    """A file: what it says, and the keys that it leaves out, with their meaning and default."""

    name: str
    given: list[Given]
    left: list[tuple[str, str]]


def read(path: Path, kind: str) -> File:
    """The file at this path. kind: smtpd, queued, httpd or collect."""
    model = SCHEMAS[f"{kind}.schema.json"]
    source = load_yaml(path, os.environ)
    validated(model, source)
    known = dict(keys(model))
    given = [
        Given(_written(at), _shown(at, value), source.line(at), known.get(_general(at), ""))
        for at, value in _leaves(source.values, ())
    ]
    said = {_general(at) for at, _ in _leaves(source.values, ())}
    left = [
        (key, meaning)
        for key, meaning in known.items()
        if "[]" not in key
        and "<name>" not in key
        and not any(each == key or each.startswith(f"{key}.") for each in said)
    ]
    return File(path.name, given, left)


def _leaves(value: Any, at: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    """Every value that is not made of others, and lists of such as one."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves(each, (*at, key))
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for number, each in enumerate(value):
            yield from _leaves(each, (*at, number))
    else:
        yield at, value


def _shown(at: KeyPath, value: Any) -> str:
    if names_secret(at) and not isinstance(value, bool) and at[-1] not in {"file", "environment"}:
        return show(value, secret=True)
    if isinstance(value, list):
        return ", ".join(_shown((*at, number), each) for number, each in enumerate(value)) or "[]"
    if isinstance(value, dict):
        return "{}"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else mask(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _written(at: KeyPath) -> str:
    return "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in at).removeprefix(".")


def _general(at: KeyPath) -> str:
    return "".join("[]" if isinstance(each, int) else f".{each}" for each in at).removeprefix(".")
