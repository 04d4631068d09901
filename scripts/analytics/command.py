"""command — `pillarbox analytics`: keeps history as a lake, searches it, reports on it with Spark, and cleans it up

Owns: the list of verbs, each a folder or module of this package with `add_verb`, and the error for missing packages.
Guarantees: no part of Spark or Arrow is loaded before a verb that needs it runs.
Raises: PillarboxError when the extra is not installed, and for errors that an operator can correct.
See: docs/how-to/observe/export-history.md; docs/explanation/analytics.md.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Final

from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

#: The verbs, in the order of --help, and their modules: each has `add_verb(verbs)` and imports Spark and Arrow late.
VERBS: Final = {
    "generate": "generate.command",
    "export": "export.command",
    "cleanup": "cleanup.command",
    "search": "search.command",
    "report": "report.command",
    "stream": "stream",
}

_NEEDED: Final = ("pyspark", "pyarrow", "numpy", "pyiceberg", "sqlalchemy")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `analytics` and its verbs to the command line."""
    parser = subparsers.add_parser("analytics", help="history: keep it as Parquet, report on it, clean it up (Spark)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    for module in VERBS.values():
        importlib.import_module(f"scripts.analytics.{module}").add_verb(verbs)
    for added in verbs.choices.values():
        added.set_defaults(func=_with_extra(added.get_default("func")))


def _with_extra(func: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """`func`, or a one-line error if the extra is not installed."""

    def run(options: argparse.Namespace) -> int:
        needed()
        return func(options)

    return run


def needed() -> None:
    """Raise PillarboxError if the extra is not installed."""
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        install = ".venv/bin/pip install -c constraints.txt -e '.[analytics]'"
        raise PillarboxError(f"analytics needs {', '.join(absent)}; in the checkout: {install}")
