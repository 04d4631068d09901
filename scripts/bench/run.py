"""run — one run of a benchmark, from its command line to its last line

Owns: the options that all benchmarks share, the output of their figures, and the exit status.
Guarantees: --with adds the rounds of earlier runs, perhaps on other machines, to this one's. Figures go to standard
    output, and the summary line is the last; progress and errors go to standard error. SIGTERM ends the run like
    Ctrl-C, so that no process is left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import sysconfig
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from operate.doctor.python import is_optimised
from scripts.bench.book import last_line
from shared.errors import ConfigError, PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from scripts.bench.book import Book

_INTERRUPTED: Final = 130
_PAGES: Final = Path("docs/explanation")
_END: Final = "<!-- end -->"


def parser(module: str, description: str, *, quick: str = "tiny sizes") -> argparse.ArgumentParser:
    """The command line of scripts.bench.`module`; `quick` is the help text of --quick."""
    made = argparse.ArgumentParser(prog=f"python -m scripts.bench.{module}", description=description)
    var = Path("var") / f"bench-{module}"
    made.add_argument(
        "--rounds",
        type=int,
        default=3,
        metavar="N",
        help="rounds of every measurement (default 3); 0 measures nothing and shows the files of --with",
    )
    made.add_argument("--quick", action="store_true", help=f"{quick}: tests the benchmark, not speed")
    made.add_argument("--json", type=Path, metavar="FILE", help="write every value of every round to this file")
    made.add_argument(
        "--with",
        dest="earlier",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="add the rounds of an earlier run's --json file, perhaps of another machine; repeatable",
    )
    made.add_argument("--write", action="store_true", help=f"write the tables into their page below {_PAGES}")
    made.add_argument("--var", type=Path, default=var, metavar="DIR", help=f"working directory, emptied first ({var})")
    return made


def run(name: str, options: argparse.Namespace, measure: Callable[[], Book], book: Book, page: str) -> int:
    """Measure, add earlier runs, and show; the exit status. `book` is empty, for a run of no rounds."""
    # asyncio ends its tasks at SIGINT, where that is not ignored as it is for what a shell runs in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        if options.rounds:
            book = measure()
        for path in options.earlier:
            book.absorb(_document(path), str(path))
        if not book.cells:
            raise ConfigError("--rounds: 0 requires --with FILE")
    except KeyboardInterrupt:
        return _INTERRUPTED
    except PillarboxError as error:
        progress(name, str(error))
        return error.exit_status
    if options.json:
        options.json.write_text(json.dumps(book.document(), indent=1) + "\n", encoding="utf-8")
    if options.write:
        write(_PAGES / page, f"make {name}", book.markdown())
    book.show(Console())
    print(last_line(book.figures()))
    return 0


def write(path: Path, command: str, text: str) -> None:
    """Write the text between this command's marks on a page."""
    begin = f"<!-- written by `{command} ARGS=--write`: begin -->"
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(_END)
    if not found or not ended:
        raise PillarboxError(f"{path}: {begin} or {_END} is missing")
    path.write_text(f"{before}{begin}\n{text}\n{_END}{after}", encoding="utf-8")


def _document(path: Path) -> dict[str, Any]:
    """The JSON document of an earlier run."""
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and found.keys() >= {"settings", "cells", "notes"}:
            return found
    raise ConfigError(f"--with: {path} is not the result of a run; allowed: a file written by --json")


def machine() -> str:
    """The machine and its Python. A Python built without PGO makes our code a third slower."""
    build = "with" if is_optimised(sysconfig.get_config_vars()) else "without"
    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()} {build} PGO"


def progress(name: str, text: str) -> None:
    """Print progress to standard error."""
    sys.stderr.write(f"{name}: {text}\n")
