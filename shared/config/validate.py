"""validate — makes a model of a YAML file, or says everything that is wrong with it

Guarantees: a model that is returned is valid as a whole.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from shared.config.errors import explain
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from shared.config.yaml_source import YamlSource


def validated[Model: BaseModel](model: type[Model], source: YamlSource) -> Model:
    """The model of these values."""
    try:
        return model.model_validate(source.values)
    except ValidationError as error:
        # Not chained: pydantic's own text would quote values that we mask.
        raise ConfigError("\n".join(explain(source, model, error))) from None


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """What is found wrong in this block with a configuration that was read names its file."""
    try:
        yield
    except ConfigError as error:
        text = str(error)
        raise ConfigError(text if text.startswith(str(path)) else f"{path}: {text}") from None
