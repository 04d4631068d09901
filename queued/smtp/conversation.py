"""conversation — what an attempt and its hosts said to each other, where its transport keeps that

Owns: the lines of the attempt under way, and their bounds.
Guarantees: nothing is written down of itself: commands, replies and notes are what callers hand over. They hand over no
    content, no command of a login, and of a reply during a login only its code; replies afterwards come with the
    login's secrets masked (queued/smtp/wire.py). Each line is one line of printable characters; of a long conversation
    the beginning and the end stay. Where nothing is kept, a line costs a look at a variable.
See: sql/README.md, "Results"; queued/waiting/watchdog.py, which follows an attempt in the same way.
"""

from __future__ import annotations

from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from shared.how_many import how_many
from shared.mail.decode import printable

if TYPE_CHECKING:
    from shared.mail.smtp_reply import Reply

_HALF: Final = 4000  # characters that stay of the beginning, and of the end
_LINE: Final = 500  # characters of a line


class Conversation:
    """The lines so far: `>` for ours, `<` for the host's, `*` for what happened otherwise."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._room = _HALF
        self._last: deque[str] = deque()
        self._held = 0
        self._left_out = 0

    def add(self, mark: str, text: str) -> None:
        """One more line."""
        line = f"{mark} {printable(text, most=_LINE)}"
        size = len(line) + 1
        if not self._last and size <= self._room:
            self._first.append(line)
            self._room -= size
            return
        self._last.append(line)
        self._held += size
        while self._held > _HALF:
            self._held -= len(self._last.popleft()) + 1
            self._left_out += 1

    def __str__(self) -> str:
        """The conversation, a line for each."""
        cut = [f"* {how_many(self._left_out, 'line')} left out"] if self._left_out else []
        return "\n".join([*self._first, *cut, *self._last])


_CURRENT: ContextVar[Conversation | None] = ContextVar("conversation", default=None)


def begin(*, kept: bool) -> Conversation | None:
    """The conversation of the attempt that begins here, where it is `kept`; for this task and those it starts."""
    made = Conversation() if kept else None
    _CURRENT.set(made)
    return made


def said(command: bytes) -> None:
    """A command of ours, with its CR LF; never one of a login."""
    if (current := _CURRENT.get()) is not None:
        current.add(">", command.decode("utf-8", "replace").removesuffix("\r\n"))


def heard(reply: Reply, *, code_only: bool = False) -> None:
    """A reply; `code_only` while we log in, when a host may say our own words back to us."""
    if (current := _CURRENT.get()) is not None:
        current.add("<", str(reply.code) if code_only else str(reply))


def noted(text: str) -> None:
    """What happened otherwise: a host that was connected to, a login, content, a fault."""
    if (current := _CURRENT.get()) is not None:
        current.add("*", text)


def content(octets: int) -> None:
    """Content of this size was begun, which is not kept itself."""
    if (current := _CURRENT.get()) is not None:
        current.add("*", f"content, {how_many(octets, 'octet')}")
