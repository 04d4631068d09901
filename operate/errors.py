"""errors — why something that was asked for is not done

Owns: the kinds of refusal, by which an interface chooses an exit status or a status code.
Guarantees: one clear line for any interface; for the command line the same in its own words, where they name a command
    or an option.
"""

from __future__ import annotations

from shared.errors import PillarboxError


class Refused(PillarboxError):
    """What was asked for cannot be done as it was asked."""

    def __init__(self, reason: str, command: str | None = None) -> None:
        """`command`: the same as the command line says it; by default `reason`."""
        super().__init__(reason if command is None else command)
        self.reason = reason


class NotThere(Refused):
    """What was named is not there, or not any more."""


class NotNow(Refused):
    """What was named is there, but in a state in which this cannot be done."""


class NotAllowed(Refused):
    """The caller may not do this."""
