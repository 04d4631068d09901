"""config-files — the configuration files of a folder, read whole

Raises: ConfigError for a file that cannot be used, or for files that name different databases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shared.config.collect.load import load_collect
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from shared.config.collect.settings import CollectConfig
    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig


def load_both(folder: Path) -> tuple[SmtpdConfig, QueuedConfig]:
    """Both files, which must speak of the same database."""
    smtpd, queued = load_smtpd(folder / "smtpd.yaml"), load_queued(folder / "queued.yaml")
    ours, theirs = smtpd.environment, queued.environment
    if (ours.database.uri, ours.var) != (theirs.database.uri, theirs.var):
        raise ConfigError(f"{folder}: smtpd.yaml and queued.yaml name different databases; both must name the same")
    return smtpd, queued


def load_collector(folder: Path, smtpd: SmtpdConfig) -> CollectConfig | None:
    """The collector's file, which must speak of the same queue; None without the file, or where it is not enabled."""
    config = collector_file(folder)
    if config is None or not config.enabled:
        return None
    ours, theirs = smtpd.environment, config.environment
    if (ours.database.uri, ours.var) != (theirs.database.uri, theirs.var):
        raise ConfigError(f"{folder}: smtpd.yaml and collect.yaml name different databases; both must name the same")
    return config


def collector_file(folder: Path) -> CollectConfig | None:
    """The collector's file, whether it is enabled or not; None without the file."""
    file = folder / "collect.yaml"
    return load_collect(file) if file.exists() else None
