"""interrupted — Ctrl-C in the middle of long work says what was done, and how to go on or to undo it

Guarantees: one line on standard error, and exit status 130 (128 and SIGINT), as a shell has it. A second Ctrl-C
    ends the command without a word.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Interrupted(PillarboxError):
    """Ctrl-C; the text says what was done."""

    exit_status = 130


@contextmanager
def telling(words: Callable[[], str]) -> Iterator[None]:
    """Run work that Ctrl-C may end; `words` are asked for only then."""
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise Interrupted(f"interrupted: {words()}") from None
