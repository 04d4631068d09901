"""terminal — makes a value safe for a terminal: no markup, no control characters

Owns: the replacement of characters that would act on a terminal.
Guarantees: pure; each character that is not printable becomes one that is, so nothing moves and nothing is hidden.
"""

from __future__ import annotations

from rich.text import Text


def printable(value: object) -> str:
    """The value's text, nothing for None."""
    shown = "" if value is None else str(value)
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in shown)


def text(value: object) -> Text:
    """The same for a table of rich's, which then reads no markup in it."""
    return Text(printable(value))
