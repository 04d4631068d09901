"""lines — the output `csv`: mailroom's lines on standard output

Owns: the format of a line, octet for octet as mailroom's collector writes it, and writing it whole.
Guarantees: one batch is one line, `action,email,username,secret,code` repeated, action 1 for activation and 2 for
    recovery. A line is written whole, and flushed, before its tokens are committed as collected: at least once. The
    event loop goes on while a reader is slow.
Raises: OutputClosed.
See: https://github.com/tetsuo/mailroom, "Batch output structure".
"""

from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

from collect.output import OutputClosed
from collect.token import ACTIVATION
from shared.observe import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collect.token import Signer, Token
    from shared.postgres import database


def line(tokens: Sequence[Token], signer: Signer) -> bytes:
    """One batch as its line."""
    values = (
        f"{1 if token.action == ACTIVATION else 2},{token.email},{token.login},{signer(token)},{token.code}"
        for token in tokens
    )
    return (",".join(values) + "\n").encode()


class Lines:
    """Writes lines to a file descriptor."""

    def __init__(self, signer: Signer, descriptor: int = 1) -> None:
        self._signer = signer
        self._descriptor = descriptor
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            os.set_blocking(descriptor, False)

    async def hand_over(self, connection: database.Connection, tokens: Sequence[Token]) -> None:  # noqa: ARG002 - as Output
        """Write the line, and return when the system has taken all of it."""
        left = line(tokens, self._signer)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                await self._writable()
            except BrokenPipeError:
                raise OutputClosed("the reader of standard output has ended") from None
        events.emit("collect.printed", tokens=len(tokens))

    async def hand_over_apart(self, connection: database.Connection, tokens: Sequence[Token]) -> list[Token]:
        """As hand_over: no line is refused."""
        await self.hand_over(connection, tokens)
        return []

    async def _writable(self) -> None:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_writer(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._descriptor)
