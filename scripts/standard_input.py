"""standard-input — reads the file `-` of a command to its end

Guarantees: at a terminal one line on standard error says beforehand what to type and how to end it.
"""

from __future__ import annotations

import sys


def read(what: str) -> bytes:
    """All of it; `what`: what a person types there."""
    if sys.stdin.isatty():
        sys.stderr.write(f"pillarbox: type {what}; Ctrl-D on a line of its own ends it\n")
    return sys.stdin.buffer.read()
