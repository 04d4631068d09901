"""render — makes a message safe to look at: text and a list of parts, nothing active

Owns: the view of a message for reviewers: a few header fields, its text, its parts by type, name and size.
Guarantees: pure; raises only NotShown; takes a quarter of a second at most for 50 MB of any content. Everything
    shown is printable: no escape sequence, no direction override, no line end but our own. HTML becomes text; nothing
    is fetched, run or written. The view is bounded, and notes say what was left out, and what a mail program may show
    in place of it.
See: RFC 2047 (encoded words), RFC 2231 (parameters); operate/mime/parts.py.
"""

from __future__ import annotations

import quopri
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from operate.mime.html_text import from_html
from operate.mime.parts import MOST_COUNTED, MOST_PARTS, Part, Walked, again, header_of, walk
from shared.how_many import how_many
from shared.mail.decode import characters, decoded, decoded_or_cut, from_base64, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS: Final = ("From", "Sender", "Reply-To", "To", "Cc", "Subject", "Date", "Message-ID", "List-Id")
_TEXT: Final = 65_536  # octets of a part's body that become text
_LINES, _WIDTH = 200, 500
_NAME: Final = 100  # characters of a file name
_BETWEEN: Final = 300  # characters of a text between parts
_READ: Final = ("text/", "message/", "multipart/")  # a multipart whose parts are not found is text to some
_ONCE: Final = {name.lower(): name for name in FIELDS}  # RFC 5322 section 3.6
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/\s]*+[=\s]*+")  # which every mail program decodes alike
_TOLD: Final = 5  # notes of one kind
_PIECES: Final = 20  # of a file name that is cut to pieces (RFC 2231 section 3)


@dataclass(frozen=True, slots=True)
class ShownPart:
    """A part in the list: its type, the name it gives itself, the octets of its body, whether it is attached."""

    type: str
    name: str
    size: int
    attached: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A message as a reviewer sees it. notes: what was left out, or is odd."""

    header: dict[str, str]
    text: str
    parts: tuple[ShownPart, ...]
    notes: tuple[str, ...]


class NotShown(Exception):
    """The part does not exist, or it is not text."""


def render(content: bytes, number: int | None = None) -> Shown:
    """Look at a message; at the text of one part, by its number in the list, or else at the one to read first.

    Raises NotShown for a number that is not that of a part of text.
    """
    walked = walk(content)
    parts = tuple(_listed(part) for part in walked.parts)
    notes = [*_odd(content), *_doubtful(walked)]
    if walked.count > MOST_PARTS:
        counted = how_many(walked.count, "part") if walked.count < MOST_COUNTED else f"{MOST_COUNTED} parts or more"
        notes.append(f"{counted}; the first {MOST_PARTS} are listed")
    if walked.deeper:
        notes.append("there are more multiparts than the limit, or they are nested more deeply")
    chosen = _chosen(walked.parts, parts) if number is None else _part(walked.parts, number)
    text, cut, of_html = _text(content, chosen) if chosen else ("", False, ())
    if chosen is None:
        notes.append("there is no text to show")
    notes += of_html
    if cut:
        notes.append("the text is longer than what is shown")
    if chosen and encoding_of(chosen) == b"base64" and not _BASE64.fullmatch(content, chosen.start, chosen.end):
        notes.append("the text is not sound base64, and a mail program may show more of it, or less")
    named = _named(walked.header)
    notes += [f"{name} is longer than what is shown" for name, (_, more) in named.items() if more]
    notes += _unread(walked.parts, chosen)
    return Shown({name: value for name, (value, _) in named.items()}, text, parts, tuple(notes))


def fields_of(content: bytes) -> dict[str, str]:
    """The header fields of a message that tell people what it is, of its beginning alone."""
    return {name: value for name, (value, _) in _named(header_of(content)).items()}


def _odd(content: bytes) -> Iterator[str]:
    """Fields that the header has twice: mail programs differ in which of them they show."""
    more = again(content, _ONCE)
    for name, value in more[:_TOLD]:
        yield f'{_ONCE[name]} is there again, and a mail program may show this one: "{decoded(value)}"'
    if len(more) > _TOLD:
        yield f"of these fields there are {len(more) - _TOLD} more"


def _doubtful(walked: Walked) -> Iterator[str]:
    """Where a mail program may show another text, or text that is in no part."""
    for doubt in walked.doubts:
        yield f"{doubt}, and a mail program may show another text, and other parts, than are shown here"
    for text in walked.between:
        said = printable(" ".join(characters(text, "utf-8").split()), most=_BETWEEN)
        yield f'before the first part or behind the last there is text that some mail programs show: "{said}"'


def _unread(parts: tuple[Part, ...], chosen: Part | None) -> Iterator[str]:
    """The other texts there are, which a mail program may show in place of this one or below it."""
    unshown = [(number, part) for number, part in enumerate(parts, 1) if part is not chosen]
    others = [(number, part) for number, part in unshown if _is_text(part.type)]
    for number, part in others[:_TOLD]:
        if part.alternative:
            why = "an alternative: mail programs show one of them, mostly the last"
        else:
            why = "text that is not shown here"
        yield f"part {number} ({printable(part.type)}) is {why}; look at it with --part {number}"
    if len(others) > _TOLD:
        more = how_many(len(others) - _TOLD, "more part is", "more parts are")
        yield f"{more} text that is not shown here"
    unreadable = [(number, part) for number, part in unshown if part.alternative and not _is_text(part.type)]
    if unreadable:
        named = ", ".join(f"part {number} ({printable(part.type)})" for number, part in unreadable[:_TOLD])
        more = f" and {len(unreadable) - _TOLD} more" if len(unreadable) > _TOLD else ""
        yield f"{named}{more}: an alternative that cannot be shown here; mail programs show one, mostly the last"


def _part(parts: tuple[Part, ...], number: int) -> Part:
    """The part of this number."""
    if not 1 <= number <= len(parts):
        raise NotShown(f"part {number} does not exist; allowed: 1 to {len(parts)}")
    type_ = parts[number - 1].type
    if not _is_text(type_):
        raise NotShown(
            f"part {number} is {printable(type_)}; allowed: a part of type text, message, multipart or XHTML"
        )
    return parts[number - 1]


def _is_text(type_: str) -> bool:
    return type_.startswith(_READ) or is_html(type_)


def is_html(type_: str) -> bool:
    """Whether a part of this type is HTML."""
    return type_ == "text/html" or type_.endswith("xhtml+xml")


def _named(header: dict[str, bytes]) -> dict[str, tuple[str, bool]]:
    """The fields to show, and whether there is more of each."""
    return {name: decoded_or_cut(header[name.lower()]) for name in FIELDS if name.lower() in header}


def _listed(part: Part) -> ShownPart:
    disposition = part.header.get("content-disposition", b"").lower().lstrip()
    name = _filename(part)
    attached = disposition.startswith(b"attachment") or (bool(name) and not disposition.startswith(b"inline"))
    size = part.size
    if encoding_of(part) == b"base64":
        size = size * 3 // 4
    return ShownPart(printable(part.type), name, size, attached or not part.type.startswith("text/"))


def _filename(part: Part) -> str:
    for field, name in (("content-disposition", "filename"), ("content-type", "name")):
        given = part.parameters(field)
        extended = given.get(f"{name}*", b"") or _pieces(given, name)
        if extended.count(b"'") >= 2:  # noqa: PLR2004 - charset'language'value (RFC 2231 section 4)
            charset, _, value = extended.split(b"'", 2)
            return printable(characters(unquote_to_bytes(value), charset.decode("ascii", "replace")), most=_NAME)
        plain = given.get(name, b"") or extended
        if plain:
            return printable(decoded(plain), most=_NAME)
    return ""


def _pieces(given: dict[str, bytes], name: str) -> bytes:
    """A value in pieces: name*0, name*1 …, or name*0*, name*1* …"""
    found = b""
    for number in range(_PIECES):
        piece = given.get(f"{name}*{number}*", given.get(f"{name}*{number}"))
        if piece is None:
            break
        found += piece
    return found


def _chosen(parts: tuple[Part, ...], listed: tuple[ShownPart, ...]) -> Part | None:
    """The part that is read: the first plain text, else the first HTML."""
    for wanted in ("text/plain", "text/html"):
        for part, shown in zip(parts, listed, strict=True):
            if part.type == wanted and not shown.attached:
                return part
    return None


def encoding_of(part: Part) -> bytes:
    """How the body of a part is encoded."""
    return part.header.get("content-transfer-encoding", b"").strip().lower()


def _text(content: bytes, part: Part) -> tuple[str, bool, tuple[str, ...]]:
    """The text of a part in printable lines, whether it is cut, and notes where it is HTML."""
    raw = content[part.start : min(part.end, part.start + _TEXT)]
    encoding = encoding_of(part)
    if encoding == b"base64":
        raw = from_base64(raw)
    elif encoding == b"quoted-printable":
        raw = quopri.decodestring(raw)
    charset = part.parameters("content-type").get("charset", b"")
    text = characters(raw, charset.decode("ascii", "replace") or "utf-8")
    notes: tuple[str, ...] = ()
    if is_html(part.type):
        text, notes = from_html(text)
    lines = list(_lines(text))
    cut = part.size > _TEXT or len(lines) > _LINES
    return "\n".join(lines[:_LINES]), cut, notes


def _lines(text: str) -> Iterator[str]:
    """Printable lines, the long ones in pieces; of empty ones in a row only the first."""
    empty = True
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        shown = line.replace("\t", "    ").rstrip()
        if shown or not empty:
            yield from (printable(shown[at : at + _WIDTH], most=_WIDTH) for at in range(0, len(shown) or 1, _WIDTH))
        empty = not shown
