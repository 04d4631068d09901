"""consent — asks before a command changes anything

Owns: the options --yes and --dry-run, and the question at a terminal, for every command that acts on more than what its
    command line names one by one.
Guarantees: nothing is changed without --yes or a yes typed at a terminal. Without a terminal and without --yes the
    command is refused in one line, after its preview, with exit status 1; --dry-run shows the preview and ends with 0.
Raises: PillarboxError when the answer is no, or cannot be asked for.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse


def add_consent(verb: argparse.ArgumentParser) -> None:
    """The options of every command that asks."""
    either = verb.add_mutually_exclusive_group()
    either.add_argument("--yes", action="store_true", help="act without asking")
    either.add_argument("--dry-run", action="store_true", help="only show what would change")


async def agreed(options: argparse.Namespace, verb: str, *, wanted: int | None = None) -> bool:
    """Whether to act, asked after the preview; False for --dry-run, or where there is nothing to act on.

    `verb`: the command, for what it says. `wanted`: what it would act on, where that is counted.
    """
    if options.yes:
        return True
    if options.dry_run:
        if not options.json:
            print("nothing was changed")
        return False
    if not sys.stdin.isatty():
        raise PillarboxError(
            f"{verb}: nothing was changed: there is no terminal to ask at; --yes acts, --dry-run only shows"
        )
    stream = sys.stderr if options.json else sys.stdout
    if wanted == 0:
        stream.write("there is nothing to do\n")
        return False
    stream.write("do this? [y/N] ")
    stream.flush()
    # Not by input(), which would hold the event loop up and Ctrl-C with it.
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), typed.set)
    try:
        await typed.wait()
    except asyncio.CancelledError:  # Ctrl-C
        sys.stderr.write(f"\npillarbox: {verb}: nothing was changed\n")
        raise
    finally:
        loop.remove_reader(sys.stdin.fileno())
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise PillarboxError(f"{verb}: nothing was changed")
    return True
