"""json_schema — the JSON Schemas of our YAML files, for editors, and every key with its meaning

See: config/*.schema.json, which `python -m scripts.dev.schema` writes.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, override

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from shared.config.collect.settings import CollectConfig
from shared.config.httpd.settings import HttpdConfig
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.settings import SmtpdConfig

SCHEMAS: Final[dict[str, type[BaseModel]]] = {
    "smtpd.schema.json": SmtpdConfig,
    "queued.schema.json": QueuedConfig,
    "httpd.schema.json": HttpdConfig,
    "collect.schema.json": CollectConfig,
}


class WithoutTitles(GenerateJsonSchema):
    """pydantic's generator without the titles that only repeat each key."""

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema (draft 2020-12) of `model` as the text of its file, keys as written in YAML."""
    schema = {
        "$schema": WithoutTitles.schema_dialect,
        **model.model_json_schema(by_alias=True, schema_generator=WithoutTitles),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def keys(model: type[BaseModel]) -> Iterator[tuple[str, str]]:
    """Every key of the file of `model` with its description, as docs/reference/configuration.md has them."""
    root = json.loads(schema_text(model))
    return _keys(root, root, "")


def _keys(
    node: dict[str, Any], root: dict[str, Any], path: str, above: tuple[int, ...] = ()
) -> Iterator[tuple[str, str]]:
    """Every key below a schema node with its description, depth first; a recursive section is not expanded again."""
    target = _followed(node, root)
    above = (*above, id(target))
    for name, child in target.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        inner = _followed(child, root)
        items = _followed(inner["items"], root) if inner.get("type") == "array" else {}
        if id(inner) in above or id(items) in above:
            yield f"{here}[]" if items else here, child.get("description", "")
        elif "properties" in items:
            yield f"{here}[]", child.get("description", "")
            yield from _keys(items, root, f"{here}[]", above)
        elif isinstance(inner.get("additionalProperties"), dict):
            yield f"{here}.<name>", child.get("description", "")
        elif "properties" in inner:
            yield from _keys(inner, root, here, above)
        else:
            yield here, child.get("description", "")


def _followed(node: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    """The node that a reference, or the only alternative to null, refers to."""
    for alternative in (node, *node.get("anyOf", ())):
        if "$ref" in alternative:
            found: dict[str, Any] = root["$defs"][alternative["$ref"].rpartition("/")[2]]
            return found
    return node
