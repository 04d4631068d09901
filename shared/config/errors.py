"""errors — turns pydantic's errors into lines that an operator can act on

Owns: the wording `file:line: key.path: what is wrong; allowed: ...` and the suggestion for a mistyped key.
Guarantees: pure; one line for every problem, in the order of the file; values of secrets are masked.
See: https://docs.pydantic.dev/latest/errors/validation_errors/ for the error types distinguished here
"""

import difflib
import re
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from shared.config.fields import MisplacedError, quotes_hint
from shared.config.yaml_source import KeyPath, YamlSource
from shared.masking import names_secret, one_line, show

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


def explain(source: YamlSource, model: type[BaseModel], error: ValidationError) -> list[str]:
    """One line for every problem in `error`, which arose when `source` was read as `model`."""
    found = sorted(set(_problems(source, model, error)))
    return [f"{source.file}:{line}: {path}: {text}" for line, path, text in found]


def dotted(path: KeyPath) -> str:
    """A key path as written in messages: `servers[0].phases.data.maxsize`."""
    written = ""
    for part in path:
        if isinstance(part, int):
            written += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            written += f".{part}" if written else part
        else:
            written += f"[{show(part)}]"
    return written


def keys_of(model: type[BaseModel]) -> list[str]:
    """The keys of a section as written in YAML."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _problems(source: YamlSource, model: type[BaseModel], error: ValidationError) -> Iterator[tuple[int, str, str]]:
    for problem in error.errors(include_url=False):
        path: KeyPath = problem["loc"]
        value: Any = problem["input"]
        kind = problem["type"]
        of_key = kind in {"missing", "extra_forbidden"}
        if path and path[-1] == "[key]":  # pydantic's way to say that the key is wrong, not the value
            path, of_key = path[:-1], True
        if source.is_inherited(path):
            continue  # reported where it is written
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, MisplacedError):
            for below, text in cause.problems:
                yield source.line((*path, *below)), dotted((*path, *below)), text
            continue
        if kind == "value_error":
            text = str(cause)
        elif kind == "extra_forbidden":
            text = _unknown(
                str(path[-1]), show(value, secret=names_secret(path, misplaced=True)), section_at(model, path[:-1])
            )
        else:
            text = _mismatch(kind, value, path, model, problem.get("ctx", {}))
        place = path[:-1] if kind == "missing" else path
        yield source.line(place, of_key=of_key), dotted(path), one_line(text)


def _unknown(key: str, shown: str, section: type[BaseModel]) -> str:
    allowed = keys_of(section)
    close = difflib.get_close_matches(key, allowed, n=1)
    suggestion = f"; did you mean {close[0]}?" if close else ""
    return f"unknown key (value {shown}); allowed: {', '.join(allowed)}{suggestion}"


def _mismatch(kind: str, value: object, path: KeyPath, model: type[BaseModel], ctx: dict[str, Any]) -> str:
    """Words for the error types pydantic raises by itself; those of our own checks come worded."""
    shown = (
        "an empty value" if value is None else show(value, secret=names_secret(path, misplaced=kind == "model_type"))
    )
    match kind:
        case "missing":
            text = "is missing; allowed: " + _description(section_at(model, path[:-1]), str(path[-1]))
        case "literal_error":
            choices = ctx["expected"].replace("'", "")
            text = f"{shown} is not usable here; allowed: {choices}{quotes_hint(value)}"
        case "too_short":
            text = "the list is empty; allowed: at least one entry, or to leave the key out"
        case "list_type":
            text = f"{shown} is not a list; allowed: entries that begin with a hyphen, or [a, b]"
        case "dict_type":
            text = f"{shown} is not a mapping; allowed: lines of key: value, or {{}}"
        case "string_type":
            text = f"{shown} is not text; allowed: text{quotes_hint(value)}"
        case "bool_type":
            text = f"{shown} is neither true nor false; allowed: true or false"
        case "model_type":
            text = f"{shown} is not a section; allowed: the keys {', '.join(keys_of(section_at(model, path)))}"
        case _:
            raise AssertionError(f"an error type our models cannot raise: {kind}")
    return text


def _description(section: type[BaseModel], key: str) -> str:
    field = next(field for name, field in section.model_fields.items() if (field.alias or name) == key)
    return field.description or key


def section_at(model: type[BaseModel], path: KeyPath) -> type[BaseModel]:
    """The section at `path`; lists, mappings by name and `| None` on the way are followed."""
    named = False  # whether the next key is a name that the operator chose
    for part in path:
        if isinstance(part, str) and not named:
            field = next(field for name, field in model.model_fields.items() if (field.alias or name) == part)
            model = _section_in(field.annotation) or model
            named = get_origin(field.annotation) is dict
        else:
            named = False
    return model


def _section_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)
