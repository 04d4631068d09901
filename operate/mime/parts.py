"""parts — finds the parts of a message without trusting it

Owns: the MIME structure as far as a reviewer needs it: the parts with type, name and size.
Guarantees: pure; never raises, for any octets; its time grows with the size alone: it goes
    from delimiter line to delimiter line, reads the headers of MOST_PARTS leaves and as many multiparts at most, looks
    no deeper than DEEPEST, counts no further than MOST_COUNTED, and says so. The standard library's parser builds a
    tree of everything, recursively: it takes 16 seconds for 200,000 small parts, and ends in a RecursionError at 2000
    levels. What another reader may divide or decode otherwise is named, and so is text that lies between the parts.
See: RFC 2046 section 5.1 (multipart), RFC 2183 (Content-Disposition), RFC 2045 section 5.1 (parameters).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

DEEPEST: Final = 20  # multiparts within each other
MOST_PARTS: Final = 200  # that are listed
MOST_COUNTED: Final = 100_000
_HEADER: Final = 65_536  # octets of one part's header that are looked at
_FIELDS: Final = 200  # of one part's header
_VALUE: Final = 4096  # octets of one field

_BLANK: Final = re.compile(rb"\n\r?\n")  # the empty line between header and body
_FIELD: Final = re.compile(rb"([!-9;-~]{1,76})[ \t]*:")
_FOLD: Final = re.compile(rb"\r?\n[ \t]+")
_PARAMETER: Final = re.compile(
    rb';[ \t]*([a-z0-9!#$%&\'*+.^_`{|}~-]{1,40})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.){0,1000})"|([^\s";]{1,1000}))',
    re.IGNORECASE,
)
_TYPE: Final = re.compile(rb"[ \t]*([a-z0-9!#$&^_.+-]{1,60}/[a-z0-9!#$&^_.+-]{1,60})", re.IGNORECASE)
# Mail programs differ in which of these they read a body by, where there are several.
OF_FORM: Final = {name.lower(): name for name in ("Content-Type", "Content-Transfer-Encoding", "Content-Disposition")}
# A Content-Type that mail programs read alike: without comments, backslashes, and spaces around "=".
_ALIKE: Final = re.compile(
    rb"[a-z0-9!#$&^_.+-]++/[a-z0-9!#$&^_.+-]++[ \t]*+"
    rb'(?:;[ \t]*+(?:[a-z0-9!#$%&\'*+.^_`{|}~-]++=(?:"[^"\\]*+"|[^\s";,()<>\\]++)[ \t]*+)?+)*+',
    re.IGNORECASE,
)
_ENCODINGS: Final = frozenset({b"7bit", b"8bit", b"binary", b"base64", b"quoted-printable"})
_TEXT: Final = re.compile(rb"\S")
_KEPT: Final = 5  # pieces of text between parts
_PIECE: Final = 2000  # octets of one


@dataclass(frozen=True, slots=True)
class Part:
    """One leaf. start, end: the place of its encoded body. header: by name in lower case, the first field of each.

    alternative: it is in a multipart/alternative, of which mail programs show one part.
    """

    depth: int
    type: str
    start: int
    end: int
    header: dict[str, bytes] = field(default_factory=dict, repr=False)
    alternative: bool = False

    @property
    def size(self) -> int:
        """Octets of the body, as encoded."""
        return max(0, self.end - self.start)

    def parameters(self, name: str) -> dict[str, bytes]:
        """The parameters of a field; none when there is no such field."""
        return parameters(self.header.get(name, b""))


@dataclass(frozen=True, slots=True)
class Walked:
    """The findings. header: the message's own. parts: the leaves, at most MOST_PARTS. count: how many there are."""

    header: dict[str, bytes]
    parts: tuple[Part, ...]
    count: int
    deeper: bool  # some parts are deeper than DEEPEST, or multiparts beyond MOST_PARTS, and are shown as one part
    doubts: tuple[str, ...] = ()  # where another reader may find other parts, or decode them otherwise
    between: tuple[bytes, ...] = ()  # the beginnings of texts before a first part or behind a last one, _KEPT at most


def walk(content: bytes) -> Walked:
    """The parts of a message."""
    return _Walker(content).walk()


def parameters(value: bytes) -> dict[str, bytes]:
    """The parameters of a structured field by name in lower case; of several with one name the first."""
    found: dict[str, bytes] = {}
    for match in _PARAMETER.finditer(value[:_VALUE]):
        given = match[2] if match[2] is not None else match[3]
        found.setdefault(match[1].lower().decode("latin-1"), re.sub(rb"\\(.)", rb"\1", given))
    return found


def header_of(content: bytes) -> dict[str, bytes]:
    """The fields of a message's header by name in lower case; of several with one name the first."""
    return _fields(content, 0)[0]


def again(content: bytes, names: Collection[str]) -> list[tuple[str, bytes]]:
    """The further fields of the message's header under one of these names, in lower case."""
    lines, _, _ = _header(content, 0)
    seen: set[str] = set()
    more = []
    for name, value in _named(lines):
        if name in seen and name in names:
            more.append((name, value))
        seen.add(name)
    return more


def _fields(content: bytes, start: int, doubts: dict[str, None] | None = None) -> tuple[dict[str, bytes], int]:
    """The fields of the header that begins here, and where the body begins. doubts: takes what is doubtful in it."""
    lines, body, cut = _header(content, start)
    found: dict[str, bytes] = {}
    for name, value in _named(lines):
        if name in OF_FORM and doubts is not None:
            if name in found:
                doubts[f"{OF_FORM[name]} is there again"] = None
            doubts.update(dict.fromkeys(_doubts(name, value)))
        found.setdefault(name, value)
    if cut and doubts is not None:
        doubts["the header is longer than what was looked at"] = None
    return found, body


def _doubts(name: str, value: bytes) -> Iterator[str]:
    """Why another reader may read this field of the form otherwise."""
    field_name = OF_FORM[name]
    if name == "content-transfer-encoding":
        if value.lower() not in _ENCODINGS:
            yield f"{field_name} is not one that every mail program knows"
        return
    names = [match[1].lower().decode("latin-1") for match in _PARAMETER.finditer(value[:_VALUE])]
    for known in ("boundary", "charset", "name", "filename"):
        if names.count(known) > 1:
            yield f"{field_name} gives {known} more than once"
    if name == "content-type":
        for known in ("boundary", "charset"):
            if any(given.startswith(f"{known}*") for given in names):
                yield f"{field_name} gives {known} in a form that not every mail program reads"
        if len(value) >= _VALUE or not _ALIKE.fullmatch(value):
            yield f"{field_name} is written in a way that mail programs read differently"


def _header(content: bytes, start: int) -> tuple[list[bytes], int, bool]:
    """The unfolded lines of the header that begins here, where the body begins, and whether there are more lines."""
    if content.startswith((b"\r\n", b"\n"), start):  # there is none
        return [], start + (2 if content.startswith(b"\r\n", start) else 1), False
    blank = _BLANK.search(content, start)
    end, body = blank.span() if blank else (len(content), len(content))
    lines = _FOLD.sub(b" ", content[start : min(end, start + _HEADER)]).splitlines()
    return lines[:_FIELDS], body, end - start > _HEADER or len(lines) > _FIELDS


def _named(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """The fields among them, names in lower case."""
    for line in lines:
        match = _FIELD.match(line)
        if match is not None:
            name, value = match[1].lower(), line[match.end() :].strip()
            if len(value) > _VALUE and not name.startswith(b"content-"):
                value = b" ".join(value.split())  # or spaces would push out what a mail program shows
            yield name.decode("ascii"), value[:_VALUE]


class _Walker:
    """One way from delimiter line to delimiter line."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._open: list[bytes] = []  # the boundaries, the innermost last
        self._kinds: list[str] = []  # the types of these multiparts
        self._lines: re.Pattern[bytes] | None = None  # their delimiter lines; None: to be made again
        self._parts: list[Part] = []
        self._count = 0
        self._multiparts = 0
        self._deeper = False
        self._doubts: dict[str, None] = {}
        self._inner: dict[str, None] = {}  # the same, of the headers of parts
        self._between: list[bytes] = []

    def walk(self) -> Walked:
        header, body = _fields(self._content, 0, self._doubts)
        self._part(header, body, len(self._content), at_top=True)
        # The delimiter may be the very first line of the body.
        line = self._delimiter(max(0, body - 1))
        if self._open:
            self._beside(body, line)
        while line is not None and self._count < MOST_COUNTED:
            boundary, closes = line[1], bool(line[2])
            left = self._open.index(boundary) + (0 if closes else 1)
            if left < len(self._open):
                del self._open[left:]
                del self._kinds[left:]
                self._lines = None
            start = min(line.end() + 1, len(self._content))  # behind the line's end
            # A header reaches to the next delimiter at most: what has no empty line does not swallow its neighbours.
            following = self._delimiter(line.end())
            if closes:
                self._beside(start, following)
            else:
                following = self._begin(start, following)
            line = following
        doubts = [*self._doubts, *(f"in a part, {doubt}" for doubt in self._inner)]
        return Walked(header, tuple(self._parts), self._count, self._deeper, tuple(doubts), tuple(self._between))

    def _begin(self, start: int, following: re.Match[bytes] | None) -> re.Match[bytes] | None:
        """The part between here and the delimiter that follows; the delimiter to go on with."""
        if len(self._parts) >= MOST_PARTS:
            self._count += 1
            return following
        end = self._before(following)
        header, body = _fields(self._content[start:end], 0, self._inner)
        depth = len(self._open)
        self._part(header, start + body, end)
        if len(self._open) > depth:
            # What follows may be a delimiter of the new multipart, which was not looked for before.
            following = self._delimiter(max(start, start + body - 1))
            self._beside(start + body, following)
        return following

    def _beside(self, start: int, line: re.Match[bytes] | None) -> None:
        """Keep the text, if there is any, between here and a delimiter line: no part has it."""
        if len(self._between) < _KEPT:
            end = self._before(line)
            text = _TEXT.search(self._content, start, end)
            if text is not None:
                self._between.append(self._content[text.start() : min(end, text.start() + _PIECE)])

    def _part(self, header: dict[str, bytes], body: int, end: int, *, at_top: bool = False) -> None:
        """Another level, or a leaf."""
        said = header.get("content-type", b"")
        found = _TYPE.match(said)
        type_ = found[1].lower().decode("ascii") if found else "text/plain"
        boundary = parameters(said).get("boundary", b"").rstrip()
        if type_.startswith("multipart/") and boundary and boundary not in self._open:
            if len(self._open) < DEEPEST and self._multiparts < MOST_PARTS:
                self._multiparts += 1
                self._open.append(boundary)
                self._kinds.append(type_)
                self._lines = None
                return
            self._deeper = True
        self._count += 1
        depth, alternative = 0 if at_top else len(self._open), "multipart/alternative" in self._kinds
        self._parts.append(Part(depth, type_, body, max(body, end), header, alternative))

    def _before(self, line: re.Match[bytes] | None) -> int:
        """Where what stands before a delimiter line ends: the line end belongs to the line."""
        if line is None:
            return len(self._content)
        at = line.start()
        return at - 1 if self._content[max(0, at - 1) : at] == b"\r" else at

    def _delimiter(self, start: int) -> re.Match[bytes] | None:
        """The next delimiter line from here on, without its own line end: whose, and whether it closes."""
        if not self._open:
            return None
        if self._lines is None:
            longest_first = sorted(self._open, key=len, reverse=True)
            names = b"|".join(map(re.escape, longest_first))
            self._lines = re.compile(rb"\n--(" + names + rb")(--)?+[ \t\r]*+(?=\n|\Z)")
        return self._lines.search(self._content, start)
