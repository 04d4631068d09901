"""masking — makes values fit to print: one line, shortened, without secrets

Owns: the definition of a secret in configuration, and the quoting of bad values in errors.
Guarantees: pure; the result is printable and one line; passwords in libpq URIs and conninfo strings and
argon2 hashes never survive, whole values never survive under a key that names a secret.
See: libpq connection strings, https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING
Bugs: text of the form `a:b@c` is masked although it may be harmless; the other way round would be worse.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MASK = "***"
LONGEST = 60  # characters of a value worth repeating to someone who can open the file
MOST_MASKED = 4096  # characters looked at, since the patterns below take quadratic time

# Not anchored on a scheme: a URI mistyped without one still carries its password.
_USERINFO = re.compile(r"([^\s:/@]*):(?!//).+@", re.DOTALL)
# Up to the end of the text, not of the word: a broken quote must not uncover the rest of a password.
_PASSWORD = re.compile(r"(password\s*=).*", re.IGNORECASE | re.DOTALL)
_ARGON2 = re.compile(r"(\$argon2)\S*")
_SECRET_KEY = re.compile(r"pass|pwd|secret|token|credential|hash(?!ing)|users", re.IGNORECASE)


def mask(text: str) -> str:
    """`text` with the passwords of libpq URIs and conninfo strings, and argon2 hashes, replaced by ***."""
    text = _PASSWORD.sub(rf"\1{MASK}", text)
    text = _USERINFO.sub(rf"\1:{MASK}@", text)
    return _ARGON2.sub(rf"\1{MASK}", text)


def names_secret(path: Sequence[str | int], *, misplaced: bool = False) -> bool:
    """Whether the value at this key path is a secret as a whole, judged by the names on the way to it.

    misplaced: the value is not of a key of ours; in `authentication` it may be a user's password.
    """
    return any(isinstance(part, str) and _SECRET_KEY.search(part) for part in path) or (
        misplaced and "authentication" in path
    )


def one_line(text: str) -> str:
    """`text` with everything unprintable, line ends included, written as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def show(value: object, *, secret: bool = False) -> str:
    """How a value from a YAML file is quoted in a message; containers are only named, never unfolded."""
    match value:
        case None:
            return "nothing"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _ if secret:
            return MASK
        case bool() | int() | float():
            return _number(value)
        case _:
            return _quoted(str(value))


def _number(value: float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return _shortened(str(value))
    except ValueError:  # CPython prints no integer above 4300 digits
        return "a very long number"


def _quoted(text: str) -> str:
    return one_line(json.dumps(_shortened(mask(text[:MOST_MASKED])), ensure_ascii=False))


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
