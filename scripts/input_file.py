"""input-file — reads a file that a command names, `-` for standard input

Guarantees: at a terminal one line on standard error says beforehand what to type and how to end it. At most _LONGEST
    octets are read, so a device that never ends does not fill the memory.
Raises: OSError, also for a file that is longer.
"""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Final

from shared.config.units import format_size

_LONGEST: Final = 256 << 20  # octets


def read(file: str, what: str) -> bytes:
    """All of it; `what`: what a person types there."""
    if file != "-":
        with Path(file).open("rb") as stream:
            content = stream.read(_LONGEST + 1)
    else:
        if sys.stdin.isatty():
            sys.stderr.write(f"pillarbox: type {what}; Ctrl-D on a line of its own ends it\n")
        content = sys.stdin.buffer.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise OSError(errno.EFBIG, f"longer than {format_size(_LONGEST)}")
    return content
