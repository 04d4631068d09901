"""bench_run — one run of a benchmark, from its command line to its last line

Owns: the options that all benchmarks have, where their figures go, and the exit status.
Called by: scripts.bench_core, scripts.bench_flow and scripts.bench_smtpd.
Guarantees: figures come on standard output, the last line last of all; what is going on, and why it failed, on standard
    error. Nobody is left behind when whoever started us gives up on us.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from scripts.bench_book import last_line
from scripts.doctor_python import is_optimised
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.bench_book import Book

_INTERRUPTED: Final = 130


def parser(module: str, description: str, *, quick: str = "tiny sizes") -> argparse.ArgumentParser:
    """The command line of scripts.`module`; `quick` says what `--quick` leaves."""
    made = argparse.ArgumentParser(prog=f"python -m scripts.{module}", description=description)
    var = Path("var") / module.replace("_", "-")
    made.add_argument("--rounds", type=int, default=3, metavar="N", help="of every measurement (default 3)")
    made.add_argument("--quick", action="store_true", help=f"{quick}: proves the benchmark, not speed")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every value of every round there")
    made.add_argument("--var", type=Path, default=var, metavar="DIR", help="emptied first")
    return made


def run(name: str, options: argparse.Namespace, measure: Callable[[], Book]) -> int:
    """Measure and show; the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        book = measure()
    except KeyboardInterrupt:
        return _INTERRUPTED
    except PillarboxError as error:
        progress(name, str(error))
        return error.exit_status
    if options.json:
        options.json.write_text(json.dumps(book.document(), indent=1) + "\n", encoding="utf-8")
    book.show(Console())
    print(last_line(book.figures()))
    return 0


def machine() -> str:
    """On what is measured. A Python that was built without a profile makes everything that is ours a third slower."""
    build = "with" if is_optimised(sysconfig.get_config_vars()) else "without"
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()} {build} PGO"


def progress(name: str, text: str) -> None:
    """What is going on."""
    sys.stderr.write(f"{name}: {text}\n")
