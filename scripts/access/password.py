"""password — reads a password that a person types, or that a program pipes in

Guarantees: a password is never an argument, so it is in no process list and no shell history. Ctrl-D and Ctrl-C at the
    question are one line, and nothing was changed.
Raises: PillarboxError for an empty password, or for two that differ; KeyboardInterrupt.
"""

from __future__ import annotations

import getpass
import sys

from shared.errors import PillarboxError


def asked(*, twice: bool = False) -> str:
    """Asked for on a terminal, `twice` for a new one; the first line of a pipe."""
    password = _typed(twice=twice) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise PillarboxError("the password is empty; nothing was changed")
    return password


def _typed(*, twice: bool) -> str:
    try:
        password = getpass.getpass()
        if twice and password and password != getpass.getpass("Again: "):
            raise PillarboxError("the two passwords differ; nothing was changed")
    except EOFError:  # Ctrl-D
        sys.stderr.write("\n")
        return ""
    except KeyboardInterrupt:
        sys.stderr.write("\npillarbox: nothing was changed\n")
        raise
    return password
