"""files — the other daemons' files, as verbs ask for them

Owns: where they are: smtpd's as mail.smtpd says, queued.yaml and collect.yaml beside httpd.yaml.
Guarantees: each is read again when it has changed, in a thread of its own, so that other requests do not wait. Where
    smtpd's is gone, its defaults: who may decide about held mail PostgreSQL knows by itself.
Raises: NotNow for a file that cannot be used.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from operate.errors import NotNow
from shared.config.collect.load import load_collect
from shared.config.queued.load import load_queued
from shared.config.smtpd.load import load_smtpd
from shared.config.smtpd.settings import SmtpdConfig
from shared.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shared.config.collect.settings import CollectConfig
    from shared.config.queued.settings import QueuedConfig


class Files:
    """What was read, with the state of the file at that moment."""

    def __init__(self, folder: Path, rules: str) -> None:
        """rules: smtpd's file, as a path from the folder."""
        self.folder = folder
        self.rules = rules
        self._read: dict[str, tuple[tuple[int, ...], Any]] = {}

    async def smtpd(self) -> SmtpdConfig:
        """Who accepts mail, and its quarantines."""
        if not (self.folder / self.rules).exists():
            return SmtpdConfig.model_validate({})
        found: SmtpdConfig = await self._load(self.rules, load_smtpd)
        return found

    async def queued(self) -> QueuedConfig:
        """Who delivers mail, and its transports."""
        found: QueuedConfig = await self._load("queued.yaml", load_queued)
        return found

    async def collect(self) -> CollectConfig | None:
        """Who collects account mail; None where the file is not here."""
        if not (self.folder / "collect.yaml").exists():
            return None
        found: CollectConfig = await self._load("collect.yaml", load_collect)
        return found

    async def _load(self, name: str, load: Callable[[Path], Any]) -> Any:
        path = self.folder / name
        state = _state(path)
        known = self._read.get(name)
        if known is None or known[0] != state:
            try:
                known = self._read[name] = state, await asyncio.to_thread(load, path)
            except ConfigError:
                why = "is not beside httpd.yaml, or is not valid, and this needs it; `pillarbox doctor` says more"
                raise NotNow(f"{name} {why}") from None
        return known[1]


def _state(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
