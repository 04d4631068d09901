"""load — smtpd.yaml, read, checked, and explained

Guarantees: the shipped file and the models' defaults are equal.
Raises: ConfigError with every problem found, one line each: file, line, key, value and what is allowed.
See: config/smtpd.yaml for every key, shared/config/smtpd/settings.py
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from shared.config.smtpd.settings import SmtpdConfig
from shared.config.validate import validated
from shared.config.yaml_source import load_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def load_smtpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> SmtpdConfig:
    """The configuration in the smtpd.yaml at `path`; `environ` is what `!Env` sees. Raises ConfigError."""
    return validated(SmtpdConfig, load_yaml(path, environ))


def read_smtpd(path: Path | str, environ: Mapping[str, str] = os.environ) -> tuple[SmtpdConfig, dict[str, object]]:
    """As load_smtpd, with the plain values it was made of: what another process makes the same configuration from."""
    source = load_yaml(path, environ)
    return validated(SmtpdConfig, source), source.values


def smtpd_from(values: Mapping[str, object]) -> SmtpdConfig:
    """The configuration of values that read_smtpd has checked."""
    return SmtpdConfig.model_validate(values)
