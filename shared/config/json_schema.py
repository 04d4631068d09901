"""json_schema — the JSON Schemas of our YAML files, for editors

See: config/*.schema.json, which `python -m scripts.dev.schema` writes.
"""

import json
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
