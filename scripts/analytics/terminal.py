"""terminal — the command-line parts of all analytics verbs: options and a progress line

Owns: `--config`, `--database`, `--json`, days and counts on the command line, and progress on standard error.
Guarantees: progress is one line that is overwritten on a terminal, and a line every ten seconds elsewhere. It never
    goes to standard output, so that `--json` stays JSON.
"""

from __future__ import annotations

import argparse
import sys
from datetime import date
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.analytics.session import MASTER
from scripts.analytics.workers import JOBS
from scripts.options import MOST, add_config
from shared.masking import show
from shared.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

_EVERY: Final = 10.0  # seconds between lines without a terminal
_FIRST: Final = date(1970, 1, 1)
_LAST: Final = date(9998, 12, 31)
_UNITS: Final = {"k": 10**3, "m": 10**6}


def add_common(parser: argparse.ArgumentParser, func: Callable[[argparse.Namespace], int]) -> None:
    """The options of every verb."""
    add_config(parser)
    parser.add_argument(
        "--database", metavar="URI", help="libpq URI instead of environment.database.uri: a replica, another role"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(func=func)


def add_spark(parser: argparse.ArgumentParser, default: str = MASTER) -> None:
    """The options of a verb that runs on Spark."""
    parser.add_argument(
        "--master",
        default=default,
        metavar="MASTER",
        help=f"Spark's master: local[N], spark://…, yarn (default {default})",
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="memory of Spark's driver, such as 2g (default: a quarter of the free memory)"
    )


def add_jobs(parser: argparse.ArgumentParser) -> None:
    """The option of a verb that reads PostgreSQL in several processes."""
    parser.add_argument(
        "--jobs",
        type=count,
        default=JOBS,
        metavar="N",
        help=f"portions read at a time, each by one connection (default {JOBS}: one for each core, at most 4)",
    )


def day(text: str) -> date:
    """A day as YYYY-MM-DD; the days that a report adds before and after it exist too."""
    try:
        found = date.fromisoformat(text)
        if _FIRST <= found <= _LAST:
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{show(text)} is not a day; allowed: YYYY-MM-DD, from {_FIRST} to {_LAST}")


def count(text: str) -> int:
    """A number of rows; 250k and 10m are thousands and millions."""
    digits, unit = (text[:-1], _UNITS[text[-1].lower()]) if text[-1:].lower() in _UNITS else (text, 1)
    if 0 < (number := (whole_number(digits) or 0) * unit) <= MOST:
        return number
    raise argparse.ArgumentTypeError(f"{show(text)} is not a number from 1 to {MOST}, such as 5000, 250k or 10m")


class Progress:
    """Reports the progress of a long run on standard error."""

    def __init__(self, verb: str, total: int, unit: str) -> None:
        self._begun = self._printed_at = monotonic()
        self._verb, self._total, self._unit = verb, total, unit
        self._watched = sys.stderr.isatty()
        self._ended = False

    def tell(self, done: int, what: str = "") -> None:
        """Report that `done` of the total are done."""
        now = monotonic()
        if self._ended:
            return
        last = self._ended = done >= self._total
        if not last and now - self._printed_at < (0.2 if self._watched else _EVERY):
            return
        self._printed_at = now
        rate = done / max(now - self._begun, 1e-3)
        text = f"pillarbox: {self._verb}: {done:,} of {self._total:,} {self._unit} ({rate:,.0f}/s) {what}".rstrip()
        sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if last else "") if self._watched else f"{text}\n")
        sys.stderr.flush()
