"""from_header — parses From, Sender and their Resent- forms, both for the check of senders and for signing

Guarantees: pure, and one parser for both, so that no spelling of the field passes the check as one author and is signed
    as another. Comments nest and may hold escapes; quoted names and groups are understood; stray line ends count as the
    spaces that they become. A field that can be read in two ways, a second From, or a field that is longer or more
    nested than any honest one is refused, and so is one in a header of more than 2 MiB; parsing takes some milliseconds
    at most, for any content.
See: RFC 5322 sections 3.2 (comments, quoted strings), 3.4 (mailboxes, groups), 3.6 (one From field; Sender; Resent-)
    and 4.4 (obsolete forms); RFC 6376 section 8.15 (repeated fields).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from shared.mail.address import AddressRefused, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.mail.message import Address

_LONGEST: Final = 10_240  # octets of a From field, and of all the others together: some hundred addresses
_MOST: Final = 100  # fields of Sender and the like: a message is resent a few times
_HEADER: Final = 1 << 21  # octets of a header; content without an empty line may be all header
_NESTED: Final = 100  # comments within one another
# Stray line ends count here, for there are readers to whom they end a line.
_BEGIN: Final = rb"(\A|\r\n|[\r\n])(?:%b)(?:[ \t\x00]|\r(?!\n)|(?<!\r)\n)*:"
_FROM: Final = re.compile(_BEGIN % b"from", re.IGNORECASE)
_SENDERS: Final = re.compile(_BEGIN % b"sender|resent-from|resent-sender", re.IGNORECASE)
_VALUE: Final = re.compile(rb"(?:[^\r]|\r(?!\n)|\r\n[ \t])*")
_STRAY: Final = re.compile(rb"\r(?!\n)|(?<!\r)\n|\x00")  # octets that are sent as a space (queued/smtp/content.py)
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+)
      | (?P<quoted>"(?:[^"\\]|\\.)*")
      | (?P<literal>\[[^\[\]\\]*\])
      | (?P<special>[<>,;:])
      | (?P<word>[^\s"()<>,;:\[\]\\]+)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT: Final = re.compile(r"\\.|[()]", re.DOTALL)


class Author(NamedTuple):
    """One mailbox of From. name: the words before its angle brackets that are not in quotes."""

    address: Address
    name: str


class _Unreadable(Exception):
    """The field means different things to different readers."""


class _Token(NamedTuple):
    kind: str  # blank (comments too), quoted, literal, special, word
    text: str


def authors(content: bytes) -> tuple[Author, ...] | None:
    """The mailboxes of From, in order; empty without such a field, None where the field cannot be read in one way.

    content: a message, or its header alone, as it was accepted.
    """
    end = _header_end(content)
    if end > _HEADER:
        return None
    fields = _FROM.finditer(content, 0, end)
    field = next(fields, None)
    if field is None:
        return ()
    return None if next(fields, None) is not None else _read(content, field, end)


def senders(content: bytes) -> tuple[Author, ...] | None:
    """The mailboxes of Sender, Resent-From and Resent-Sender, as `authors` has those of From."""
    end = _header_end(content)
    if end > _HEADER:
        return None
    found: list[Author] = []
    octets = 0
    for number, field in enumerate(_SENDERS.finditer(content, 0, end)):
        read = _read(content, field, end, octets) if number < _MOST else None
        if read is None:
            return None
        found += read
        octets += len(_value(content, field, end))
    return tuple(found)


def _header_end(content: bytes) -> int:
    end = 0 if content.startswith(b"\r\n") else content.find(b"\r\n\r\n")
    return len(content) if end < 0 else end


def _value(content: bytes, field: re.Match[bytes], end: int) -> bytes:
    """The value of a field with its folds, up to one octet more than the longest."""
    value = _VALUE.match(content, field.end(), min(end, field.end() + _LONGEST + 1))
    return value[0] if value else b""


def _read(content: bytes, field: re.Match[bytes], end: int, before: int = 0) -> tuple[Author, ...] | None:
    """The mailboxes of a field; None where it has none or several readings. before: octets of fields read already."""
    value = _value(content, field, end)
    if len(field[1]) == 1 or before + len(value) > _LONGEST:
        return None
    text = _STRAY.sub(b" ", value).decode(errors="replace")
    try:
        return tuple(_mailboxes(list(_tokens(text)))) or None
    except (_Unreadable, AddressRefused):
        return None


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        if text[at] == "(":
            at = _comment_end(text, at)
            yield _Token("blank", " ")
            continue
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise _Unreadable
        yield _Token(found.lastgroup, found[0])
        at = found.end()


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for mark in _COMMENT.finditer(text, start):
        depth += (mark[0] == "(") - (mark[0] == ")")
        if depth > _NESTED:
            break
        if depth == 0:
            return mark.end()
    raise _Unreadable


def _mailboxes(tokens: list[_Token]) -> Iterator[Author]:
    """Each mailbox of the list; groups are opened, empty places between commas are none (RFC 5322 section 4.4)."""
    part: list[_Token] = []
    in_group = in_angle = False
    for token in [*tokens, _Token("special", ",")]:
        mark = token.text if token.kind == "special" else ""
        in_angle = (in_angle or mark == "<") and mark != ">"
        if mark == ":" and not in_angle:
            if in_group or any(each.kind == "special" or "@" in each.text for each in part):
                raise _Unreadable
            in_group, part = True, []
        elif mark in {",", ";"} and not in_angle:
            if mark == ";" and not in_group:
                raise _Unreadable
            in_group = in_group and mark != ";"
            if any(each.kind != "blank" for each in part):
                yield _mailbox(part)
            part = []
        else:
            part.append(token)
    if part or in_angle:
        raise _Unreadable


def _mailbox(part: list[_Token]) -> Author:
    begins = [place for place, token in enumerate(part) if token == ("special", "<")]
    ends = [place for place, token in enumerate(part) if token == ("special", ">")]
    if not begins and not ends:
        return Author(_address(part), "")
    if len(begins) != 1 or len(ends) != 1 or any(token.kind != "blank" for token in part[ends[0] + 1 :]):
        raise _Unreadable
    name = "".join(token.text for token in part[: begins[0]] if token.kind in {"word", "blank", "literal"})
    inner = part[begins[0] + 1 : ends[0]]
    colons = [place for place, token in enumerate(inner) if token == ("special", ":")]
    if colons:  # a route, which is left out (RFC 5322 section 4.4)
        if len(colons) > 1 or not "".join(token.text for token in inner).lstrip().startswith("@"):
            raise _Unreadable
        inner = inner[colons[0] + 1 :]
    return Author(_address(inner), " ".join(name.split()))


def _address(tokens: list[_Token]) -> Address:
    """The address these tokens write. Blanks may only be beside an `@` or a dot (obsolete syntax, section 4.4)."""
    text = ""
    apart = False
    for token in tokens:
        if token.kind == "special":
            raise _Unreadable
        if token.kind == "blank":
            apart = bool(text)
            continue
        if apart and text[-1] not in "@." and token.text[0] not in "@.":
            raise _Unreadable
        text, apart = text + token.text, False
    return parse(text.removesuffix("."))
