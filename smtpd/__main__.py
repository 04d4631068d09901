"""__main__ — `python -m smtpd [--config FILE]`

Owns: arguments, and the exit status: 0 after a stop, 69 or 78 (sysexits.h) for what an operator can mend, 70 when a
    part died.
Called by: people, systemd, `pillarbox up`.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from shared import events
from shared.config import load_smtpd
from shared.lifecycle import exit_status
from smtpd import daemon


def main() -> int:
    """Read the configuration and serve."""
    parser = argparse.ArgumentParser(prog="smtpd", description="Accept mail over SMTP and spool it into PostgreSQL.")
    parser.add_argument("--config", type=Path, default=Path("config/smtpd.yaml"), help="default: config/smtpd.yaml")
    arguments = parser.parse_args()

    def work() -> None:
        config = load_smtpd(arguments.config)
        events.setup(config.environment.log.level)
        asyncio.run(daemon.run(config))

    return exit_status("smtpd", work)


if __name__ == "__main__":
    sys.exit(main())
