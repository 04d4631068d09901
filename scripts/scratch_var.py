"""scratch_var — a folder for one run, empty at its beginning, whose embedded server ends with the run

Owns: `emptied`.
Guarantees: however the run ends, no PostgreSQL is left under the folder. Its files stay until the next run.
Raises: DatabaseUnavailable when a server of an earlier run cannot be stopped.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.postgres.embedded import embedded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def emptied(var: Path) -> Iterator[None]:
    """This folder, empty, for the block."""
    embedded.stop(var)
    shutil.rmtree(var, ignore_errors=True)
    var.mkdir(parents=True)
    try:
        yield
    finally:
        embedded.stop(var)
