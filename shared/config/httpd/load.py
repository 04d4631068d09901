"""load — httpd.yaml, read, checked, and explained

Guarantees: the shipped file and the models' defaults are equal.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
See: config/httpd.yaml for every key, shared/config/httpd/settings.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.config.httpd.settings import HttpdConfig
from shared.config.validate import validated
from shared.config.yaml_source import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_httpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> HttpdConfig:
    """The configuration in the httpd.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return validated(HttpdConfig, load_yaml(path, environ))


def read_httpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> tuple[HttpdConfig, dict[str, object]]:
    """As load_httpd, with the plain values it was made of: what another process makes the same configuration from."""
    source = load_yaml(path, environ)
    return validated(HttpdConfig, source), source.values


def httpd_from(values: Mapping[str, object]) -> HttpdConfig:
    """The configuration of values that read_httpd has checked."""
    return HttpdConfig.model_validate(values)
