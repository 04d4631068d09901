"""patterns — globs and regular expressions in configuration, matched in linear time

Owns: the only door to RE2; how a pattern is written: a glob (`*` and `?`), or a regular expression between slashes.
Guarantees: matching takes time linear in the text for every pattern, so that no mail can stall smtpd by its content;
    upper and lower case are the same; a glob matches the whole text, an expression any part of it.
Raises: ValueError, one line, when a pattern cannot be read.
See: https://github.com/google/re2/wiki/Syntax (safe because it has no backreferences and no look-around)
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import re2

from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Callable

LONGEST: Final = 500  # characters of a pattern; a list holds what is longer

_RE2: Final[Any] = re2  # ships no types
_OPTIONS: Final = _RE2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.dot_nl = True
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 2**20  # octets of one compiled expression: nested repetitions are refused, not served


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """The function that tells whether a text matches. Raises ValueError."""
    if not pattern or len(pattern) > LONGEST:
        raise ValueError(f"{show(pattern)} is not a pattern; allowed: 1 to {LONGEST} characters")
    expression = pattern[1:-1] if is_expression(pattern) else _translated(pattern)
    try:
        compiled = _RE2.compile(expression, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
        raise ValueError(
            f"{show(pattern)} is not a regular expression ({reason}); allowed: RE2 syntax between slashes"
        ) from None

    def matches(text: str) -> bool:
        try:
            return compiled.search(text) is not None
        except UnicodeEncodeError:  # octets that were no UTF-8
            return compiled.search(text.encode("utf-8", "replace").decode()) is not None

    return matches


def is_expression(pattern: str) -> bool:
    """Whether a pattern is written as a regular expression."""
    return len(pattern) > 2 and pattern[0] == pattern[-1] == "/"  # noqa: PLR2004 - two slashes and something between


def _translated(glob: str) -> str:
    """A glob as an expression."""
    written = {"*": ".*", "?": "."}
    return "^" + "".join(written.get(character) or _RE2.escape(character) for character in glob) + "$"
