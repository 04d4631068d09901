"""output — where collected tokens go: the form of every output

Guarantees: an output is called in the transaction that marks the tokens, which commits only if the call returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collect.token import Token
    from shared.postgres import database


class OutputClosed(Exception):
    """The reader of our output has gone, so that nothing can be handed over any more."""


class Refused(Exception):
    """A token of a batch is refused, so that the batch is to be handed over token by token."""


class Output(Protocol):
    """Takes tokens over."""

    async def hand_over(self, connection: database.Connection, tokens: Sequence[Token]) -> None:
        """Take these tokens; `connection` is in the transaction that marks them.

        Raises Refused when one of them is refused; with any error all are given back.
        """

    async def hand_over_apart(self, connection: database.Connection, tokens: Sequence[Token]) -> list[Token]:
        """Take each by itself; those that were refused, for ever."""
