"""load — queued.yaml, read, checked, and explained

Guarantees: the shipped file and the models' defaults are equal.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
See: config/queued.yaml for every key, shared/config/queued/settings.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.config.queued.settings import QueuedConfig
from shared.config.queued.transport_groups import inherit
from shared.config.validate import validated
from shared.config.yaml_source import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_queued(path: Path | str, environ: Mapping[str, str] = os.environ) -> QueuedConfig:
    """The configuration in the queued.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return validated(QueuedConfig, inherit(load_yaml(path, environ)))
