"""__main__ — `python -m queued [--config FILE] [--worker ID] [--next-hop HOST:PORT] [--dry-run [N] [--json]]`

Owns: arguments, and the exit status: 0 after a stop, 69 or 78 (sysexits.h) for errors that an operator can correct, 70
    when a part died. SIGHUP before there is something to reload is ignored.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from queued import daemon, dry_run
from queued.daemon import Worker
from shared import event_loop
from shared.command_line import Parser
from shared.config.queued.load import load_queued
from shared.config.queued.next_hop import with_next_hop
from shared.config.queued.routing import place
from shared.config.validate import naming
from shared.errors import ConfigError
from shared.lifecycle import exit_status
from shared.masking import show
from shared.observe import events
from shared.whole_number import whole_number

if TYPE_CHECKING:
    from shared.config.queued.routing import HostPort
    from shared.config.queued.settings import QueuedConfig


def main() -> int:
    """Read the configuration and deliver."""
    parser = Parser(prog="queued", description="Deliver queued mail over SMTP.")
    parser.add_argument("--config", type=Path, default=Path("config/queued.yaml"), help="default: config/queued.yaml")
    parser.add_argument("--worker", help="an id from `workers`; without it environment.database.where selects the rows")
    parser.add_argument(
        "--next-hop",
        type=_place,
        metavar="HOST:PORT",
        help="where mail goes over transports that name no next hop; `pillarbox up --sink` names its sink",
    )
    parser.add_argument(
        "--dry-run",
        type=_count,
        nargs="?",
        const=dry_run.ROWS,
        metavar="N",
        help=f"deliver nothing; show what would happen to the first N due recipients ({dry_run.ROWS})",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: one JSON document for each recipient")
    arguments = parser.parse_args()
    if arguments.json and arguments.dry_run is None:
        parser.error("--json belongs to --dry-run")
    # Its default effect would kill us before there is something to reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def read() -> QueuedConfig:
        config = load_queued(arguments.config)
        return with_next_hop(config, arguments.next_hop) if arguments.next_hop else config

    def work() -> None:
        config = read()
        events.setup(config.environment.log.level if arguments.dry_run is None else "warning")
        worker = _selection(config, arguments.worker, arguments.config)
        with naming(arguments.config):
            deliver(config, worker)

    def deliver(config: QueuedConfig, worker: Worker) -> None:
        if arguments.dry_run is not None:
            event_loop.run(dry_run.run(config, worker, arguments.dry_run, as_json=arguments.json))
        else:
            event_loop.run(daemon.run(config, worker, read))

    return exit_status("queued", work)


def _count(text: str) -> int:
    """A number of rows, from 1."""
    if not (found := whole_number(text)):
        raise argparse.ArgumentTypeError(f"{show(text)} is not a number of recipients; allowed: 1 or more")
    return found


def _place(text: str) -> HostPort:
    """A host and a port."""
    try:
        return place(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _selection(config: QueuedConfig, worker: str | None, path: Path) -> Worker:
    """Which worker this is."""
    if worker is None:
        return Worker("queued", config.environment.database.where, f"{path}: environment.database.where")
    for index, each in enumerate(config.workers):
        if each.id == worker:
            return Worker(each.id, each.where, f"{path}: workers[{index}].where")
    known = ", ".join(each.id for each in config.workers)
    raise ConfigError(f"{path}: workers: worker {show(worker)} does not exist; allowed: {known}")


if __name__ == "__main__":
    sys.exit(main())
