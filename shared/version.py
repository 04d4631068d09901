"""version — the version of what is installed"""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Such as 0.1.0; `unknown` where the code runs without having been installed."""
    try:
        return metadata.version("pillarbox")
    except metadata.PackageNotFoundError:
        return "unknown"
