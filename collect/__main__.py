"""__main__ — `python -m collect [--config FILE] [--csv]`

Owns: arguments, and the exit status: 0 after a stop, 69 or 78 (sysexits.h) for errors that an operator can correct, 70
    when a part died. SIGHUP before there is something to reload is ignored.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from collect import daemon, mailroom
from shared import event_loop
from shared.command_line import Parser
from shared.config.collect.load import load_collect
from shared.config.validate import naming
from shared.lifecycle import exit_status
from shared.observe import events


def main() -> int:
    """Read the configuration and collect."""
    parser = Parser(prog="collect", description="Queue mail for new tokens of accounts.")
    parser.add_argument("--config", type=Path, default=Path("config/collect.yaml"), help="default: config/collect.yaml")
    parser.add_argument("--csv", action="store_true", help="write mailroom's lines, as its MAILROOM_ variables say")
    arguments = parser.parse_args()
    return collect(arguments.config, csv=arguments.csv)


def collect(config: Path, *, csv: bool) -> int:
    """Collect by this file or, for `csv`, by mailroom's variables; the exit status."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its default effect would kill us before there is something to reload

    def queue() -> None:
        settings = load_collect(config)
        events.setup(settings.environment.log.level)
        with naming(config):
            event_loop.run(daemon.run(settings, lambda: load_collect(config)))

    def write() -> None:
        events.setup("info")
        event_loop.run(daemon.run_lines(mailroom.read(os.environ)))

    return exit_status("collect", write if csv else queue)


if __name__ == "__main__":
    sys.exit(main())
