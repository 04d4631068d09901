"""url — takes a URL apart, if its host and port are valid

Guarantees: never raises, where urlsplit raises ValueError for some hosts and ports.
See: https://docs.python.org/3/library/urllib.parse.html
"""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def parts_of(url: str) -> SplitResult | None:
    """The parts; None without a host, or if the host is not valid or the port not from 1 to 65535."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None
