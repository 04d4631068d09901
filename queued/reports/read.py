"""read — parses bounces and feedback reports

Owns: extracting from a message the failures that it reports, and our messages that it names. Pure.
Guarantees: no exception for any message, and bounded work: the first 256 KiB and 5000 lines, 50 parts, 100 recipients,
    2000 characters of a field. It trusts nothing: the caller must prove that the message was ours. A message that is
    not a report (RFC 6522) counts only where one address and one failure of it are on the same line.
See: RFC 3464 section 2 (fields of a bounce), RFC 6533 (international ones), RFC 5965 sections 2, 3 (feedback reports).
Bugs: bounces of the old kind, of which many hosts had one of their own, are read only where they name a status code.
"""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.errors import MessageError
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from uuid import UUID

from shared.mail import xtext

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

_OCTETS: Final = 256 * 1024
_READ_LINES: Final = 5000  # the parser's work grows with lines times depth: 256 KiB of empty lines took it seconds
# Characters of a field: the parser's work grows with their square, and 200 KB took it minutes.
_FIELD: Final = 2000
_OF_FORM: Final = 500  # of those that say how the content is to be read
_PARTS: Final = 50
_MOST: Final = 100  # recipients
_LINES: Final = 500  # of a bounce of the old kind
_LINE_END: Final = re.compile(rb"\r\n?|\n")
_STATUS: Final = re.compile(r"(?<![\d.])([245]\.\d{1,3}\.\d{1,3})(?![\d.])")
_ADDRESS: Final = re.compile(r"<([^\s<>@\"]{1,64}@[^\s<>@]{1,255})>")
_ID: Final = re.compile(r"\bid ([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\b")
_GENERAL: Final = re.compile(r"\d\.0\.0")


class Finding(NamedTuple):
    """One recipient that a report tells of."""

    recipients: tuple[str, ...]  # as it was sent, and as it was in the end; none: the report does not say
    status: str | None  # RFC 3463; None in feedback
    reason: str  # one printable line


class IncomingReport(NamedTuple):
    """The content of a report. `feedback` is the type (RFC 5965 section 3.1), None of a bounce."""

    kind: Literal["bounce", "arf"]
    feedback: str | None
    findings: tuple[Finding, ...]
    ids: tuple[UUID, ...]  # in Received fields of the message it returns
    return_paths: tuple[str, ...]  # its senders


class _Bounded(policy.Compat32):
    """The standard library's policy, for fields of bounded length, which are not folded again."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        return name, value[: _OF_FORM if name.lower().startswith("content-") else _FIELD]

    def fold(self, name: str, value: str) -> str:
        return f"{name}: {value}\n".encode(errors="surrogateescape").decode(errors="replace")


_POLICY: Final = _Bounded()


def read(content: bytes) -> IncomingReport | None:
    """The report in this message; None when it is not a report of a failure."""
    head = _head(content)
    if head.lower().count(b"boundary") > 2 * _PARTS:  # BOUNDARY= and boundary*0= are no less one
        return None
    try:
        return _read(message_from_bytes(head, policy=_POLICY), head)
    except (MessageError, RecursionError, ValueError, LookupError, TypeError, AttributeError):
        return None  # the parser's own faults with malformed mail


def _head(content: bytes) -> bytes:
    """As much of the message as is read: so many octets, so many lines, however they end."""
    head = content[:_OCTETS]
    ends = islice(_LINE_END.finditer(head), _READ_LINES - 1, None)
    last = next(ends, None)
    return head if last is None else head[: last.end()]


def _read(message: Message, head: bytes) -> IncomingReport | None:
    parts = list(_parts(message))
    returned = "".join(_returned(parts))
    ids = tuple(dict.fromkeys(UUID(found) for found in _ID.findall(returned)[:_PARTS]))
    paths = tuple(dict.fromkeys(_ADDRESS.findall("\n".join(re.findall(r"(?im)^return-path:.*$", returned)))))
    for part in parts:
        if part.get_content_type() == "message/feedback-report":
            return _feedback(part, ids, paths)
    for part in parts:
        if part.get_content_type() in {"message/delivery-status", "message/global-delivery-status"}:
            return IncomingReport("bounce", None, tuple(_failures(part)), ids, paths)
    if message.get_content_maintype() != "multipart":
        found = _old_kind(head)
        if found is not None:
            whole = head.decode("utf-8", "replace")
            return IncomingReport(
                "bounce", None, (found,), tuple(UUID(each) for each in _ID.findall(whole)[:_PARTS]), ()
            )
    return None


def _parts(message: Message) -> Iterator[Message]:
    """Every part above the returned message, whose own parts say nothing of this one."""
    kind = message.get_content_type()
    inside = message.get_payload()
    yield message
    if kind.startswith("multipart/") and isinstance(inside, list):
        for part in inside[:_PARTS]:
            if isinstance(part, type(message)):
                yield from _parts(part)


def _returned(parts: list[Message]) -> Iterator[str]:
    """The header of what is returned."""
    for part in parts:
        kind, inside = part.get_content_type(), part.get_payload()
        if kind in {"message/rfc822", "message/global"} and isinstance(inside, list):
            for message in inside[:1]:
                if isinstance(message, type(part)):
                    yield "".join(f"{name}: {value}\n" for name, value in message.items())
        elif kind in {"text/rfc822-headers", "message/rfc822-headers", "message/global-headers"}:
            yield _text(part) + "\n"


def _text(part: Message) -> str:
    inside = part.get_payload(decode=True)
    if isinstance(inside, bytes):
        return inside.decode("utf-8", "replace")
    nested = part.get_payload()  # of message/…: what the parser took for messages
    if not isinstance(nested, list):
        return str(nested)
    return "\n\n".join(each.as_string() for each in nested if isinstance(each, type(part)))


def _groups(part: Message) -> Iterator[dict[str, str]]:
    """The groups of fields of a report, names in lower case; of repeated fields the first."""
    text = _text(part).replace("\r\n", "\n")
    for group in re.split(r"\n[ \t]*\n", text)[: _MOST + 1]:
        fields: dict[str, str] = {}
        for line in re.sub(r"\n[ \t]+", " ", group).split("\n"):
            name, colon, value = line.partition(":")
            if colon:
                fields.setdefault(name.strip().lower(), value.strip())
        if fields:
            yield fields


def _failures(part: Message) -> Iterator[Finding]:
    for fields in _groups(part):
        if fields.get("action", "").partition(" ")[0].lower() != "failed":
            continue
        diagnostic = fields.get("diagnostic-code", "")
        status = _STATUS.search(fields.get("status", ""))
        code = status[1] if status else None
        said = _STATUS.search(diagnostic)
        if said and (code is None or _GENERAL.fullmatch(code)):
            code = said[1]  # many hosts report 5.0.0 for any reply of the next one
        named = (_typed(fields[name]) for name in ("original-recipient", "final-recipient") if name in fields)
        recipients = tuple(dict.fromkeys(address for address in named if address))
        if recipients and code:
            yield Finding(recipients, code, _line(diagnostic.partition(";")[2] or diagnostic or code))


def _typed(value: str) -> str | None:
    """The address of `rfc822;a@b.c`, RFC 3464 section 2.3; `utf-8` of RFC 6533 section 3."""
    kind, semicolon, address = value.partition(";")
    if not semicolon or kind.strip().lower() not in {"rfc822", "utf-8"}:
        return None
    address = address.strip().strip("<>")
    try:
        return xtext.decode_address(address, smtputf8=True) if kind.strip().lower() == "utf-8" else address
    except ValueError:
        return None


def _feedback(part: Message, ids: tuple[UUID, ...], paths: tuple[str, ...]) -> IncomingReport | None:
    groups = list(_groups(part))
    if not groups:
        return None
    fields = groups[0]
    kind = _line(fields.get("feedback-type", "").lower())
    whom = fields.get("original-rcpt-to", "").strip("<> ")
    sender = fields.get("original-mail-from", "").strip("<> ")
    if not kind:
        return None
    finding = Finding((whom,) if "@" in whom else (), None, _line(f"feedback report: {kind}"))
    return IncomingReport("arf", kind, (finding,), ids, tuple(dict.fromkeys([*([sender] if sender else []), *paths])))


def _old_kind(head: bytes) -> Finding | None:
    """A bounce in plain words: one address in all the lines that have a status code of a permanent failure."""
    body = head.replace(b"\r\n", b"\n").partition(b"\n\n")[2].decode("utf-8", "replace")
    found: dict[str, tuple[str, str]] = {}
    for line in body.split("\n")[:_LINES]:
        status, addresses = _STATUS.search(line), set(_ADDRESS.findall(line))
        if status and status[1].startswith("5.") and len(addresses) == 1:
            found.setdefault(addresses.pop().lower(), (status[1], line))
    if len(found) != 1:
        return None
    [(address, (status_code, line))] = found.items()
    return Finding((address,), status_code, _line(line))


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:300]
