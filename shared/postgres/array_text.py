"""array_text — writes lists of values in PostgreSQL's text form of an array

Owns: the quoting. Pure.
Guarantees: PostgreSQL reads the same values, None as NULL. A NUL octet is left for the driver to refuse. The driver's
    own conversion of a list looks up the type of every single value: three times the work, in the one place where it
    shows (docs/explanation/benchmarks.md).
See: PostgreSQL manual, "Array Input and Output Syntax".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def numbers(values: Iterable[float | None]) -> str:
    """An array of numbers."""
    listed = list(values)
    if None in listed:
        return f"{{{','.join(['NULL' if value is None else str(value) for value in listed])}}}"
    return f"{{{','.join(map(str, listed))}}}"


def texts(values: Iterable[str | None]) -> str:
    """An array of text, or of anything that is written as text; every element quoted, so that none is a keyword."""
    listed = list(values)
    if None in listed:
        return f"{{{','.join(['NULL' if value is None else _quoted(value) for value in listed])}}}"
    # Nearly always nothing needs quoting, which is quicker seen of all at once: no quotes but those between them.
    joined = '","'.join(listed)  # type: ignore[arg-type]
    if listed and "\\" not in joined and joined.count('"') == 2 * (len(listed) - 1):
        return f'{{"{joined}"}}'
    return f"{{{','.join([_quoted(value) for value in listed])}}}"  # type: ignore[arg-type]


def _quoted(value: str) -> str:
    if "\\" in value or '"' in value:
        value = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{value}"'
