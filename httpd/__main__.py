"""__main__ — `python -m httpd [--config FILE]`

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


def main() -> int:
    """Read the configuration and serve."""
    parser = Parser(prog="httpd", description="Serve the API over HTTP.")
    parser.add_argument("--config", type=Path, default=Path("config/httpd.yaml"), help="default: config/httpd.yaml")
    parser.add_argument("--child", type=int, metavar="FD", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    # Its default effect would kill us before there is something to reload.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        from httpd import daemon  # noqa: PLC0415 - what it needs is in an extra
        from httpd.process import child  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"fastapi", "starlette", "uvicorn", "httptools", "nh3"}:
            raise
        sys.stderr.write(f"httpd: the package {error.name} is missing; allowed: pip install 'pillarbox[web]'\n")
        return 69

    def work() -> None:
        if arguments.child is None:
            daemon.run(arguments.config)
        else:
            event_loop.run(child.run(arguments.child))

    return exit_status("httpd", work)


if __name__ == "__main__":
    sys.exit(main())
