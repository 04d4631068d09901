"""__main__ — `python -m queued [--config FILE] [--worker ID]`

Owns: arguments, and the exit status: 0 after a stop, 69 or 78 (sysexits.h) for what an operator can mend, 70 when a
    part died.
Called by: people, systemd, `pillarbox up`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from queued import daemon
from shared import events
from shared.config import load_queued
from shared.errors import ConfigError
from shared.lifecycle import exit_status

if TYPE_CHECKING:
    from shared.queued_config import QueuedConfig


def main() -> int:
    """Read the configuration and deliver."""
    parser = argparse.ArgumentParser(prog="queued", description="Deliver queued mail over SMTP.")
    parser.add_argument("--config", type=Path, default=Path("config/queued.yaml"), help="default: config/queued.yaml")
    parser.add_argument("--worker", help="an id from `workers`; without it environment.database.where selects the rows")
    arguments = parser.parse_args()

    def work() -> None:
        config = load_queued(arguments.config)
        events.setup(config.environment.log.level)
        asyncio.run(daemon.run(config, *_selection(config, arguments.worker, arguments.config)))

    return exit_status("queued", work)


def _selection(config: QueuedConfig, worker: str | None, path: Path) -> tuple[str, str, str]:
    """The worker's name, its condition, and where that stands."""
    if worker is None:
        return "queued", config.environment.database.where, f"{path}: environment.database.where"
    for index, each in enumerate(config.workers):
        if each.id == worker:
            return each.id, each.where, f"{path}: workers[{index}].where"
    known = ", ".join(each.id for each in config.workers)
    raise ConfigError(f"{path}: workers: no worker {worker!r}; allowed: {known}")


if __name__ == "__main__":
    sys.exit(main())
