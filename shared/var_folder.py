"""var_folder — whether the folder for run-time files, `environment.var`, can be used

Guarantees: nothing is made or changed; a folder that does not exist yet is fine.
Raises: ConfigError.
"""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from shared.errors import ConfigError, cause

if TYPE_CHECKING:
    from pathlib import Path


def check(var: Path) -> None:
    """Refuse a path that is not a folder, and a folder whose files any account of this host could replace."""
    try:
        mode = var.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"environment.var: {var}: {cause(error)}; allowed: a folder for run-time files") from None
    if not stat.S_ISDIR(mode):
        raise ConfigError(f"environment.var: {var} is a file; allowed: a folder for run-time files")
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        raise ConfigError(
            f"environment.var: {var} has mode {stat.S_IMODE(mode):04o}, so every account may replace its files; "
            f"allowed: a folder that others may not write (chmod o-w {var})"
        )
