"""message — makes of what a program writes the content and the envelope that SMTP needs

Owns: line ends, the recipients of -t, what is taken out of the header and what is added to it. Pure.
Guarantees: a Bcc field never leaves, nor does Resent-Bcc. The header gets From, Date and Message-ID if it lacks them,
    so that a message that is sent twice in doubt has one Message-ID. Other octets stay as they are, but for line ends.
Raises: NotAMessage.
See: RFC 5322 sections 3.6.2 to 3.6.6; RFC 5321 section 4.1.1.4 for line ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.header import Header
from email.utils import formataddr, getaddresses
from typing import TYPE_CHECKING, Final

from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIELD: Final = re.compile(rb"[!-9;-~]+[ \t]*:")
_TO: Final = (b"to", b"cc", b"bcc")
_RESENT: Final = tuple(b"resent-" + name for name in _TO)
_HIDDEN: Final = (b"bcc", b"resent-bcc")
_BAD: Final = re.compile(r"[\x00-\x20\x7f<>]")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_UNFOLD: Final = re.compile(r"\r?\n(?=[ \t])")


class NotAMessage(ValueError):
    """What was written cannot be sent; the text says why."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to submit. content: lines end with CR LF. sender: "" is the null sender.

    notify, returned, envid: the values of NOTIFY, RET and ENVID (RFC 3461), "" for none.
    """

    sender: str
    recipients: tuple[str, ...]
    content: bytes
    notify: str = ""
    returned: str = ""
    envid: str = ""

    @property
    def smtputf8(self) -> bool:
        """Whether an address needs SMTPUTF8."""
        return not all(each.isascii() for each in (self.sender, *self.recipients))

    @property
    def eight_bits(self) -> bool:
        """Whether the content has octets above 127."""
        return not self.content.isascii()


@dataclass(frozen=True, slots=True)
class Defaults:
    """What is used where the message says nothing. user: the login name; domain: completes an address without one."""

    user: str
    domain: str
    date: str
    message_id: str
    full_name: str | None = None


def read(octets: bytes, *, dot: bool) -> bytes:
    """The lines with CR LF; with `dot` a line that is a dot alone is the end."""
    lines = octets.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    if dot and b"." in lines:
        lines = lines[: lines.index(b".")]
    return b"".join(line + b"\r\n" for line in lines)


def compose(
    octets: bytes, recipients: Sequence[str], sender: str | None, defaults: Defaults, *, from_header: bool
) -> Outgoing:
    """The message to submit; `from_header`: also to whom the header says."""
    fields, body = _split(octets)
    if wrong := [each for each in recipients if _CONTROL.search(each)]:
        raise NotAMessage(f"{show(wrong[0])} is not an address")
    wanted = [address for each in recipients for address in addresses(each)]
    if from_header:
        names = _RESENT if any(_name(field) in _RESENT for field in fields) else _TO
        for field in fields:
            if _name(field) in names:
                wanted += addresses(field.partition(b":")[2].decode("utf-8", "surrogateescape"))
    to = tuple(dict.fromkeys(_complete(address, defaults.domain) for address in wanted))
    if not to:
        raise NotAMessage("a recipient is missing; allowed: addresses on the command line, or -t and To, Cc or Bcc")
    author = _complete(defaults.user if sender is None else sender, defaults.domain) if sender != "" else ""
    kept = [field for field in fields if _name(field) not in _HIDDEN]
    kept += _added({_name(field) for field in kept}, author, defaults)
    return Outgoing(author, to, b"".join(kept) + b"\r\n" + body)


def addresses(text: str) -> list[str]:
    """The addresses of a list, groups included."""
    unfolded = _UNFOLD.sub("", text).strip()
    return [address for _, address in getaddresses([unfolded], strict=False) if address]


def _complete(address: str, domain: str) -> str:
    """The address, with the domain if it has none; refused where SMTP has no command for it."""
    whole = address if "@" in address else f"{address}@{domain}"
    local, _, domain = whole.rpartition("@")
    if not local or _BAD.search(domain) or (_CONTROL if local.startswith('"') else _BAD).search(local):
        raise NotAMessage(f"{show(address)} is not an address")
    try:
        whole.encode()
    except UnicodeEncodeError:
        raise NotAMessage(f"{address!a} is not in UTF-8") from None
    return whole


def _split(octets: bytes) -> tuple[list[bytes], bytes]:
    """The fields of the header, folded lines with them, and the body; text without a header is all body."""
    lines = octets.splitlines(keepends=True) if b"\r\n" in octets else []
    lines = [line + b"\r\n" for line in octets.split(b"\r\n")[:-1]] if lines else []
    if lines and lines[0].startswith(b"From "):
        lines.pop(0)  # of an mbox
    fields: list[bytes] = []
    for number, line in enumerate(lines):
        if line == b"\r\n":
            return fields, b"".join(lines[number + 1 :])
        if line[:1] in {b" ", b"\t"} and fields:
            fields[-1] += line
        elif _FIELD.match(line):
            fields.append(line)
        else:
            return fields, b"".join(lines[number:])
    return fields, b""


def _name(field: bytes) -> bytes:
    return field.partition(b":")[0].rstrip().lower()


def _added(there: set[bytes], author: str, defaults: Defaults) -> list[bytes]:
    """The fields that every message has and this one lacks."""
    added = []
    if b"from" not in there:
        name = " ".join((defaults.full_name or "").split())
        name = name if name.isascii() else Header(name, "utf-8").encode()
        own = author or _complete(defaults.user, defaults.domain)
        added.append(b"From: " + formataddr((name, own)).encode("utf-8") + b"\r\n")
    if b"date" not in there:
        added.append(b"Date: " + defaults.date.encode() + b"\r\n")
    if b"message-id" not in there:
        added.append(b"Message-ID: " + defaults.message_id.encode() + b"\r\n")
    return added
