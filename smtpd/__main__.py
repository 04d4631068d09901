"""__main__ — `python -m smtpd [--config FILE]`

Owns: arguments, and the exit status: 0 after a stop, 69 or 78 (sysexits.h) for errors that an operator can correct, 70
    when a part died.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from shared import event_loop
from shared.command_line import Parser
from shared.lifecycle import exit_status
from smtpd import daemon
from smtpd.process import child


def main() -> int:
    """Read the configuration and serve."""
    parser = Parser(prog="smtpd", description="Accept mail over SMTP and spool it into PostgreSQL.")
    parser.add_argument("--config", type=Path, default=Path("config/smtpd.yaml"), help="default: config/smtpd.yaml")
    parser.add_argument("--child", type=int, metavar="FD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # Its default effect would kill us before there is something to reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def work() -> None:
        if arguments.child is None:
            daemon.run(arguments.config)
        else:
            event_loop.run(child.run(arguments.child))

    return exit_status("smtpd", work)


if __name__ == "__main__":
    sys.exit(main())
