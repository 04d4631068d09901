"""shipped — the files that come with Pillarbox beside its code: the YAML with every default, schemas, units

Guarantees: the same files in a checkout and in an installed wheel.
Raises: PillarboxError where they are missing.
See: pyproject.toml, [tool.setuptools.data-files].
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Final

from shared.errors import PillarboxError

_CHECKOUT: Final = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """The folder of this name: `config` or `deploy`."""
    is_checkout = (_CHECKOUT / "pyproject.toml").exists()
    found = (_CHECKOUT if is_checkout else Path(sysconfig.get_path("data"), "share", "pillarbox")) / name
    if not found.is_dir():
        raise PillarboxError(f"{found} is missing; install Pillarbox again")
    return found
