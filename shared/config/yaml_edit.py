"""yaml_edit — changes single values of a YAML file and keeps the rest of it, comments included, as it is

Guarantees: only the value, or the line that a new key needs, changes. A new key goes above the comment that shows it,
    if there is one, otherwise behind the keys that are there. The result is not checked against our models: read it
    again.
Raises: ConfigError where the text is not YAML, or the place cannot have the key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import yaml

from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A key of a mapping, or the id of an entry of a list.
type Step = str


def set_value(text: str, path: Sequence[Step], value: str) -> str:
    """The text with the value at `path` replaced by `value`, which is YAML on one line.

    A step in a list is the `id` of the entry. What the path lacks at its end is added.
    """
    try:
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {error}") from None
    if root is None:
        return f"{text}{_nested(path, value)}\n"
    node = root
    for number, step in enumerate(path):
        found = _below(node, step)
        if found is None:
            return _added(text, node, step, _nested(path[number + 1 :], value), ".".join(path[:number]))
        node = found
    start, end = node.start_mark.index, _end(node)
    return f"{text[:start]}{value}{text[end:]}"


def _below(node: yaml.Node, step: Step) -> yaml.Node | None:
    found: yaml.Node | None = None
    if isinstance(node, yaml.MappingNode):
        found = next((value for key, value in node.value if key.value == step), None)
    elif isinstance(node, yaml.SequenceNode):
        found = next((entry for entry in node.value if getattr(_below(entry, "id"), "value", None) == step), None)
    return found


def _nested(path: Sequence[Step], value: str) -> str:
    """The value below keys that do not exist yet, on one line."""
    for step in reversed(path):
        value = f"{{{step}: {value}}}"
    return value


def _added(text: str, node: yaml.Node, key: str, value: str, where: str) -> str:
    """The text with a new key in a mapping, behind its other keys."""
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        start, end = node.start_mark.index, node.end_mark.index
        return f"{text[:start]}{'' if start != end else ' '}{{{key}: {value}}}{text[end:]}"
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f'{where}: key "{key}" is missing')
    if node.flow_style:
        end = node.end_mark.index - 1
        return f"{text[:end].rstrip()}{', ' if node.value else ''}{key}: {value}{text[end:]}"
    indent = " " * node.start_mark.column
    shown = re.compile(rf"^{indent}# {re.escape(key)}:", re.MULTILINE)
    if comment := shown.search(text, node.start_mark.index, node.end_mark.index):  # the comment that shows this key
        return f"{text[: comment.start()]}{indent}{key}: {value}\n{text[comment.start() :]}"
    end = text.find("\n", _end(node))
    end = len(text) if end < 0 else end
    return f"{text[:end]}\n{indent}{key}: {value}{text[end:]}"


def _end(node: yaml.Node) -> int:
    """Where a value ends; a block's own mark is behind the comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)
