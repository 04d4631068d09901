"""load — the configuration of both daemons, read, checked, and explained

Owns: reading smtpd.yaml and queued.yaml into frozen models, and the JSON Schemas of both for editors.
Guarantees: a model that is returned is valid as a whole; the shipped files and the models' defaults are equal.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
See: config/smtpd.yaml and config/queued.yaml for every key, shared.config.smtpd.settings and
    shared.config.queued.settings
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, override

from pydantic import BaseModel, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from shared.config.errors import explain
from shared.config.queued.settings import QueuedConfig
from shared.config.queued.transport_groups import inherit
from shared.config.smtpd.settings import SmtpdConfig
from shared.config.yaml_source import YamlSource, load_yaml
from shared.errors import ConfigError

__all__ = [
    "SCHEMAS",
    "QueuedConfig",
    "SmtpdConfig",
    "load_queued",
    "load_smtpd",
    "read_smtpd",
    "schema_text",
    "smtpd_from",
]

SCHEMAS: Final[dict[str, type[BaseModel]]] = {
    "smtpd.schema.json": SmtpdConfig,
    "queued.schema.json": QueuedConfig,
}


def load_smtpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> SmtpdConfig:
    """The configuration in the smtpd.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return _checked(SmtpdConfig, load_yaml(path, environ))


def read_smtpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> tuple[SmtpdConfig, dict[str, object]]:
    """As load_smtpd, with the plain values it was made of: what another process makes the same configuration from."""
    source = load_yaml(path, environ)
    return _checked(SmtpdConfig, source), source.values


def smtpd_from(values: Mapping[str, object]) -> SmtpdConfig:
    """The configuration of values that read_smtpd has checked."""
    return SmtpdConfig.model_validate(values)


def load_queued(path: Path | str, environ: Mapping[str, str] = os.environ) -> QueuedConfig:
    """The configuration in the queued.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return _checked(QueuedConfig, inherit(load_yaml(path, environ)))


def _checked[Model: BaseModel](model: type[Model], source: YamlSource) -> Model:
    try:
        return model.model_validate(source.values)
    except ValidationError as error:
        # Not chained: pydantic's own text would quote values that we mask.
        raise ConfigError("\n".join(explain(source, model, error))) from None


class _Schema(GenerateJsonSchema):
    """pydantic's generator without the titles that only repeat each key."""

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema (draft 2020-12) of `model` as the text of its file, keys as written in YAML."""
    schema = {
        "$schema": _Schema.schema_dialect,
        **model.model_json_schema(by_alias=True, schema_generator=_Schema),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
