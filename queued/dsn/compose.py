"""compose — writes a delivery status notification

Owns: the message that reports the results of some recipients of one message to its sender. Pure.
Guarantees: lines end with CR LF, and only lines of the returned message may be longer than 998 octets; no text of a
    peer, a sender or a recipient can add a line or a field. Beyond ASCII only where the returned message was.
See: RFC 3464 section 2 (fields), RFC 6522 (multipart/report), RFC 6533, RFC 3834 section 5 (Auto-Submitted);
    RFC 3461 sections 4.3 and 6 (what RET returns); queued/dsn/texts.py.
"""

from __future__ import annotations

import re
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from queued.dsn import texts
from queued.dsn.requested import of_message, of_recipient, requiretls

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from queued.dsn.report import Kind, Manner, Original, RecipientReport


SUBJECTS: Final[Mapping[str, str]] = {
    "failed": "Undelivered Mail Returned to Sender",
    "delayed": "Delayed Mail (still being retried)",
    "delivered": "Successful Mail Delivery Report",
    "relayed": "Successful Mail Relay Report",
}
_STATUS: Final = {"failed": "5.0.0", "delayed": "4.0.0"}  # the default without a better one; RFC 3463 section 3.1
_LONGEST: Final = 900  # octets of a diagnostic, below the 998 of a line (RFC 5322 section 2.1.1)
_HOST: Final = re.compile(r"(?P<name>[^\[\]]*)(?:\[(?P<address>[^\[\]]*)\])?:\d+|.*")
_STATUS_FORM: Final = re.compile(r"[245]\.\d{1,3}\.\d{1,3}")
_STRAY: Final = re.compile(rb"\x00|\r(?!\n)|(?<!\r)\n")


class Composed(NamedTuple):
    """A notification: its content, and whether it has to be sent with SMTPUTF8."""

    content: bytes
    smtputf8: bool


def compose(
    kind: Kind,
    original: Original,
    reports: Sequence[RecipientReport],
    manner: Manner,
    number: int,
    now: datetime,
    *,
    to: str | None = None,
) -> Composed:
    """The notification of these recipients of one message.

    number: makes Message-ID and boundary unique. to: whom a copy is for, with the header only, instead of the sender.
    """
    asked = of_message(reports[0].metadata)
    whole = (
        kind == "failed"
        and to is None
        and asked.ret != "HDRS"
        # RFC 8689 section 5: as if RET=HDRS were said, for the way back may be in clear text.
        and not requiretls(reports[0].metadata)
        and original.size <= manner.size
        and original.content is not None
        and len(original.content) == original.size
        and not _STRAY.search(original.content)
    )
    returned = _returned(original, manner.size, whole=whole)
    wide = original.smtputf8 and not _ascii(returned or b"", str(original.sender), *(str(t.recipient) for t in reports))
    status = _delivery_status(kind, original, reports, manner, asked.envid)
    text = texts.text(kind, original, reports, manner, "its header" if not whole else "it")
    boundary = _boundary(number, manner.hostname, returned or b"")
    reader = to or str(original.sender)
    parts = [
        _part("text/plain; charset=" + ("us-ascii" if text.isascii() else "utf-8"), "Notification", text.encode()),
        _part(
            "message/global-delivery-status" if wide else "message/delivery-status", "Delivery report", status.encode()
        ),
    ]
    if returned is not None:
        parts.append(_part(_media_type(whole=whole, wide=wide), "Returned message", returned))
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + part + b"\r\n" for part in parts)
    head = [
        f"Date: {format_datetime(now)}",
        f'From: "{manner.name}" <{manner.address}>',
        f"To: <{reader}>",
        f"Subject: {'Postmaster Copy: ' if to else ''}{SUBJECTS[kind]}",
        f"Message-ID: <{now:%Y%m%d%H%M%S}.{number}@{manner.hostname}>",
        "Auto-Submitted: auto-replied",
        "MIME-Version: 1.0",
        f'Content-Type: multipart/report; report-type=delivery-status;\r\n\tboundary="{boundary}"',
        *([] if body.isascii() else ["Content-Transfer-Encoding: 8bit"]),
    ]
    header = "\r\n".join(head) + "\r\n\r\nThis is a MIME-encapsulated message.\r\n\r\n"
    content = header.encode() + body + f"--{boundary}--\r\n".encode()
    return Composed(content, smtputf8=not (header.isascii() and reader.isascii()))


def _delivery_status(
    kind: Kind, original: Original, reports: Sequence[RecipientReport], manner: Manner, envid: str | None
) -> str:
    """RFC 3464 sections 2.2 and 2.3: one group of fields for the message, one for each recipient."""
    groups = [
        [
            *([f"Original-Envelope-Id: {_line(envid)}"] if envid else []),
            f"Reporting-MTA: dns; {manner.hostname}",
            f"X-Pillarbox-Queue-ID: {original.id}",
            f"Arrival-Date: {format_datetime(original.arrived)}",
        ]
    ]
    for each in reports:
        asked = of_recipient(each.metadata)
        host = peer(each.remote)
        status = each.status if each.status and _STATUS_FORM.fullmatch(each.status) else _STATUS.get(kind, "2.0.0")
        groups.append(
            [
                *([f"Original-Recipient: {asked.orcpt[0]}; {_line(asked.orcpt[1])}"] if asked and asked.orcpt else []),
                f"Final-Recipient: {_typed(str(each.recipient))}",
                f"Action: {kind}",
                f"Status: {status}",
                *([f"Remote-MTA: dns; {_line(host)}"] if host else []),
                *([f"Diagnostic-Code: {_diagnostic(each)}"] if each.text else []),
                f"Last-Attempt-Date: {format_datetime(each.at)}",
                *([f"Will-Retry-Until: {format_datetime(each.until)}"] if kind == "delayed" and each.until else []),
            ]
        )
    return "\r\n".join("\r\n".join(group) + "\r\n" for group in groups)


def peer(remote: str | None) -> str | None:
    """The name of the host in `name[address]:port` or `host:port`; its address where it has no name."""
    found = _HOST.fullmatch(remote or "")
    return (found["name"] or found["address"] or None) if found and found["name"] is not None else None


def _diagnostic(report: RecipientReport) -> str:
    """RFC 3464 section 2.3.6: `smtp` is what a peer said, the rest is our own."""
    return f"{'smtp' if report.code is not None else 'X-Pillarbox'}; {_line(report.text or '', ascii_only=True)}"


def _typed(address: str) -> str:
    """RFC 3464 section 2.3.2, RFC 6533 section 3."""
    return f"{'rfc822' if address.isascii() else 'utf-8'}; {_line(address)}"


def _line(text: str, *, ascii_only: bool = False) -> str:
    """One printable line of bounded length, from any text."""
    plain = "".join(c if c.isprintable() and (c.isascii() or not ascii_only) else "?" for c in " ".join(text.split()))
    return plain.encode("utf-8", "replace")[:_LONGEST].decode("utf-8", "ignore")


def _returned(original: Original, limit: int, *, whole: bool) -> bytes | None:
    """The message, or its header as far as it fits; None when it is gone."""
    if original.content is None:
        return None
    if whole:
        return original.content
    header, end, _ = original.content.partition(b"\r\n\r\n")
    header = _STRAY.sub(b"?", header)
    if len(header) > limit or (not end and len(original.content) < original.size):
        header = header[:limit].rpartition(b"\r\n")[0]  # whole lines
    return header + b"\r\n"


def _media_type(*, whole: bool, wide: bool) -> str:
    """RFC 6522 section 3; RFC 6533 section 4."""
    if whole:
        return "message/global" if wide else "message/rfc822"
    return "message/global-headers" if wide else "text/rfc822-headers"


def _part(media_type: str, description: str, content: bytes) -> bytes:
    encoding = b"" if content.isascii() else b"Content-Transfer-Encoding: 8bit\r\n"
    head = f"Content-Description: {description}\r\nContent-Type: {media_type}\r\n".encode()
    return head + encoding + b"\r\n" + content


def _boundary(number: int, hostname: str, content: bytes) -> str:
    """A line that the returned message does not have."""
    extra = 0
    while (boundary := f"{number}.{extra}/{hostname[:40]}").encode() in content:
        extra += 1
    return boundary


def _ascii(content: bytes, *addresses: str) -> bool:
    header = content.partition(b"\r\n\r\n")[0]
    return header.isascii() and all(map(str.isascii, addresses))
