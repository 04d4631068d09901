"""where_condition — what the text of a worker's WHERE may hold before PostgreSQL reads it

Owns: splitting the text where PostgreSQL's lexer does, as far as quotes, comments, parentheses, dots and the operators
    of metadata go; which keys of metadata exist. Everything else is for PostgreSQL to judge.
Guarantees: pure; nothing is executed. Text inside quotes is never taken for SQL, nor SQL for text inside quotes; that
    holds for text in UTF-8 and with standard_conforming_strings on.
See: PostgreSQL manual, "Lexical Structure"; src/backend/parser/scan.l.
"""

from __future__ import annotations

import difflib
import re
from itertools import dropwhile, islice, pairwise
from typing import TYPE_CHECKING, Final

from shared.errors import ConfigError
from shared.mail.message import RESERVED
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Schemas that only PostgreSQL and the owner of our tables can put something into.
SCHEMAS: Final = ("pg_catalog", "pillarbox")

# Every repetition is possessive, and a quote without its end reaches to the end of the text: the time is linear.
_TOKEN: Final = re.compile(
    r"""
      [eE]'(?:[^'\\]|\\.|''|'[ \t\f\v]*+[\r\n][ \t\f\v\r\n]*+')*+(?:'|\Z)  # with escapes, in one part or several
    | '(?:[^']|'')*+(?:'|\Z)
    | "(?:[^"]|"")*+(?:"|\Z)
    | \$(?P<tag>(?:[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*+)?)\$(?:.*?\$(?P=tag)\$|.*)
    | [A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*+               # a name or a keyword
    | [0-9]++(?:\.[0-9]*+)?+ | \.[0-9]++
    | -- | /\* | [().;]
    | ->>? | <> | != | [=?]
    """,
    re.VERBOSE | re.DOTALL,
)


def check_condition(where: str) -> None:
    """Refuse a condition that reaches out of the parentheses it is put into: this is about mistakes, not trust."""
    depth = 0
    for token in _tokens(where):
        if token in {";", "--", "/*"}:
            raise ConfigError(f"{show(where)}: {show(token)} is not allowed in a condition")
        depth += {"(": 1, ")": -1}.get(token, 0)
        if depth < 0:
            break
    if depth != 0 or not where.strip():
        raise ConfigError(f"{show(where)} is not one SQL condition: its parentheses do not balance")


def mistaken_key(where: str) -> str | None:
    """What is wrong with the condition's use of metadata, for which PostgreSQL would silently find no row; or None.

    A key with `_` that does not exist; `->`, which gives JSON, where text is compared.
    """
    tokens = list(_tokens(where))
    for index, (operator, operand) in enumerate(pairwise(tokens)):
        if operator not in {"->", "->>", "?"} or not operand.startswith("'"):
            continue
        if unknown := unknown_key(operand[1:-1]):
            return unknown
        if operator == "->" and _compares_text(tokens[index + 2 :]):
            return f"metadata->{operand} is JSON and compared with text; allowed: metadata->>{operand}"
    return None


def unknown_key(key: str) -> str | None:
    """What is wrong with a key of metadata: it begins with `_` and does not exist; or None."""
    if not key.startswith("_") or key in RESERVED:
        return None
    close = difflib.get_close_matches(key, RESERVED, n=1)
    suggestion = f"; did you mean {close[0]}?" if close else ""
    return f"metadata has no key {key}; allowed: {', '.join(sorted(RESERVED))}{suggestion}"


def _compares_text(tokens: list[str]) -> bool:
    """Whether these tokens, which follow an operand, compare it with text that is not written as JSON."""
    words = {"in", "not", "like", "ilike", "(", "=", "<>", "!="}
    rest = [token.lower() for token in islice(dropwhile(")".__eq__, tokens), 4)]
    compared = next((token for token in rest if token not in words), "")
    return bool(rest) and rest[0] in words - {"("} and compared.startswith("'") and compared[1:2] not in {'"', "{", "["}


def fault(where: str) -> str | None:
    """Why PostgreSQL may not even parse this text of a stranger; None if it may.

    Reading the text of a value of a stranger's type can run the stranger's code (the check of a domain), so no name of
    another schema may occur. A name without a schema is found where search_path says.
    """
    try:
        check_condition(where)
    except ConfigError as error:
        return str(error)
    before = ""
    for each in _tokens(where):
        if each == "." and before.lower() not in SCHEMAS:
            return f'"{before}." is not allowed: only {" or ".join(SCHEMAS)} may stand before a dot'
        before = each
    return None


def _tokens(where: str) -> Iterator[str]:
    return (token[0] for token in _TOKEN.finditer(where))
