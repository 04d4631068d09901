"""headers — the header of a message as rules see it

Owns: finding the fields of a header, unfolded and decoded, and writing fields that rules add. Pure.
Guarantees: any octets can be read without an exception, and reading is bounded: of the fields that are asked for, so
    many characters are decoded, those that come first. Each written field is one line of printable ASCII, for any text
    of a client in a placeholder.
See: RFC 5322 sections 2.2 and 2.2.3 (folding), RFC 2047 (encoded words).
"""

from __future__ import annotations

import re
from binascii import a2b_base64, a2b_qp
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.mail import charset
from smtpd.message.content import first_empty_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIELD: Final = re.compile(r"^([\x21-\x39\x3b-\x7e]+)[ \t]*:((?:[^\r\n]+|\r?\n[ \t])*)", re.MULTILINE)
_FOLD: Final = re.compile(r"\r?\n(?=[ \t])")
# Of bounded length (RFC 2047 section 2 has 75 characters), so that a header full of beginnings takes linear time; the
# standard library's own decoder takes quadratic.
_WORD: Final = re.compile(r"=\?([^?\s]{1,40})\?([QqBb])\?([^?\s]{0,200})\?=")
_BETWEEN: Final = re.compile(r"(\?=)[ \t]{1,10}(?==\?)")  # blanks between encoded words mean nothing (section 6.2)
_MOST_DECODED: Final = 65_536  # characters of one message; a word of fourteen takes about four microseconds
_LONGEST: Final = 900  # characters of a value we write, so that name and value fit in 998 (RFC 5322 section 2.1.1)


class Extent(NamedTuple):
    """How much of a header is looked at: no less than one may have (phases.data.maxheader, maxheaderlines)."""

    octets: int = 1_048_576
    fields: int = 1000


WHOLE: Final = Extent()  # as far as defaults allow


class HeaderFields:
    """The fields of one message, read at the first question."""

    def __init__(self, content: bytes, extent: Extent = WHOLE) -> None:
        self._content, self._extent = content, extent
        self._fields: dict[str, list[str]] | None = None
        self._known: dict[str, list[str]] = {}
        self._room = _MOST_DECODED

    def values(self, name: str) -> list[str]:
        """Every value of a field, unfolded; an encoded one is there twice, as written and decoded."""
        name = name.lower()
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = [text for value in self._written(name) for text in self._both(value)]
        return known

    def _written(self, name: str) -> list[str]:
        if self._fields is None:
            self._fields = _read(self._content[: self._extent.octets], self._extent.fields)
        return self._fields.get(name, [])

    def _both(self, value: str) -> Iterator[str]:
        yield value
        if "=?" not in value or not self._room:
            return
        begin = value[: self._room]
        self._room -= len(begin)
        decoded = _decoded(begin) + value[len(begin) :]
        if decoded != value:
            yield decoded

    def first(self, name: str) -> str | None:
        """The first value of a field as written; None if it is absent."""
        return next(iter(self.values(name)), None)


def field_lines(headers: Iterable[tuple[str, str]]) -> bytes:
    """The lines of fields to put on top of a message."""
    return "".join(f"{name}: {printable(value)}\r\n" for name, value in headers).encode("ascii")


def printable(value: str) -> str:
    """A value as printable ASCII of bounded length: anything else becomes a question mark."""
    return "".join(c if " " <= c <= "~" else "?" for c in value[:_LONGEST])


def _read(content: bytes, most: int) -> dict[str, list[str]]:
    text = content[: first_empty_line(content)].decode("utf-8", "surrogateescape")
    found: dict[str, list[str]] = {}
    for match in islice(_FIELD.finditer(text), most):
        value = _FOLD.sub("", match[2]).strip(" \t")
        found.setdefault(match[1].lower(), []).append(value.encode("utf-8", "replace").decode())
    return found


def _decoded(value: str) -> str:
    """Encoded words as what they mean; what cannot be decoded stays as it is."""
    return _WORD.sub(_meaning, _BETWEEN.sub(r"\1", value))


def _meaning(match: re.Match[str]) -> str:
    named, encoding, text = match.groups()
    try:
        octets = a2b_qp(text, header=True) if encoding in "qQ" else a2b_base64(text)
    except ValueError:
        return match[0]
    meant = charset.text(octets, named.partition("*")[0])  # RFC 2231: charset*language
    return match[0] if meant is None else meant
