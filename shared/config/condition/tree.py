"""tree — a condition as read: terms, joined by and, or and not

Owns: the nodes, how each is written, and the error that points at a typo.
Guarantees: pure, frozen values. What is written is read back as the same condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.config.condition.fields import Field
    from shared.config.condition.values import Value


class ConditionError(PillarboxError):
    """A condition that cannot be read: three lines, the last with a caret under what is wrong."""

    exit_status = 64  # EX_USAGE, sysexits.h

    def __init__(self, reason: str, text: str, at: int) -> None:
        """`at`: the place of the fault in `text`, in characters."""
        # Unprintable characters would move the caret, or worse.
        shown = "".join(character if character.isprintable() else " " for character in text)
        first = max(0, at - 60)
        super().__init__(f"{reason}\n  {shown[first : at + 40]}\n  {' ' * (at - first)}^")
        self.reason, self.at = reason, at


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison. `operator` is =, ~, <, <=, > or >=; `negated` for != and !~."""

    name: str
    field: Field
    operator: str
    values: tuple[Value, ...]
    negated: bool = False

    def __str__(self) -> str:
        sign = "!" if self.negated else ""
        return f"{self.name}{sign}{self.operator}{','.join(map(str, self.values))}"


@dataclass(frozen=True, slots=True)
class Not:
    """The recipients that do not match."""

    part: Node

    def __str__(self) -> str:
        return f"not ({self.part})"


@dataclass(frozen=True, slots=True)
class All:
    """The recipients that match every part; without parts, all."""

    parts: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return " ".join(f"({part})" if isinstance(part, Some) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Some:
    """The recipients that match at least one part."""

    parts: tuple[Node, ...]

    def __str__(self) -> str:
        return " or ".join(map(str, self.parts))


type Node = Term | Not | All | Some


def terms(node: Node) -> Iterator[Term]:
    """Every term of a condition, in the order in which they are written."""
    match node:
        case All(parts=parts) | Some(parts=parts):
            for part in parts:
                yield from terms(part)
        case Not(part=part):
            yield from terms(part)
        case Term() as term:
            yield term
