"""load — collect.yaml, read, checked, and explained

Guarantees: the shipped file and the models' defaults are equal.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
See: config/collect.yaml for every key, shared/config/collect/settings.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.config.collect.settings import CollectConfig
from shared.config.validate import validated
from shared.config.yaml_source import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_collect(path: Path | str, environ: Mapping[str, str] = os.environ) -> CollectConfig:
    """The configuration in the collect.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return validated(CollectConfig, load_yaml(path, environ))
