"""compose — makes a message by RFC 5322 and MIME of the parts of a request

Guarantees: pure but for the date and the Message-ID, which are given. The standard library's email package makes every
    field: it encodes and folds, and refuses a line end in a value. Bcc is in no header.
See: RFC 5322, RFC 2045 to 2047, RFC 2387 (related), RFC 6532 (addresses beyond ASCII), RFC 8058.
"""

from __future__ import annotations

import mimetypes
from base64 import b64decode
from email.message import EmailMessage
from email.utils import format_datetime
from typing import TYPE_CHECKING

from httpd.sending.mailbox import read_mailbox
from shared.mail.header_policy import ASCII, UTF8, mailbox

if TYPE_CHECKING:
    from datetime import datetime
    from email.headerregistry import Address

    from httpd.sending.forms import Attachment, Send


def compose(send: Send, message_id: str, now: datetime, *, international: bool) -> bytes:
    """The octets of the message; international: its header may hold UTF-8 (RFC 6532)."""
    message = EmailMessage(UTF8 if international else ASCII)
    message["From"] = mailbox(*read_mailbox(send.sender))
    message["To"] = _listed(send.to)
    if send.cc:
        message["Cc"] = _listed(send.cc)
    if send.reply_to:
        message["Reply-To"] = _listed(send.reply_to)
    message["Subject"] = send.subject or ""
    given = {name.lower() for name in send.headers or ()}
    if "date" not in given:
        message["Date"] = format_datetime(now)
    if "message-id" not in given:
        message["Message-ID"] = f"<{message_id}>"
    if send.list_unsubscribe is not None:
        places = [f"<{send.list_unsubscribe.url}>"]
        if send.list_unsubscribe.mailto is not None:
            places.append(f"<mailto:{send.list_unsubscribe.mailto}>")
        message["List-Unsubscribe"] = ", ".join(places)
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    for name, value in (send.headers or {}).items():
        message[name] = value
    _body(message, send)
    return message.as_bytes()


def _body(message: EmailMessage, send: Send) -> None:
    files = send.attachments or []
    inline = [each for each in files if each.content_id is not None and send.html is not None]
    if send.text is not None:
        message.set_content(send.text, cte="quoted-printable")
    if send.html is not None:
        if send.text is None:
            message.set_content(send.html, subtype="html", cte="quoted-printable")
        else:
            message.add_alternative(send.html, subtype="html", cte="quoted-printable")
        shown = message if send.text is None else message.get_payload()[1]  # type: ignore[index]
        for each in inline:
            assert isinstance(shown, EmailMessage)  # noqa: S101 - for the type
            octets, main, sub = _file(each)
            shown.add_related(
                octets, main, sub, cid=f"<{each.content_id}>", filename=each.filename, disposition="inline"
            )
    for each in files:
        if each.content_id is None or send.html is None:
            octets, main, sub = _file(each)
            message.add_attachment(octets, main, sub, filename=each.filename)


def _file(attachment: Attachment) -> tuple[bytes, str, str]:
    """The octets of a file, and its media type."""
    kind = attachment.content_type or mimetypes.guess_type(attachment.filename)[0] or "application/octet-stream"
    main, _, sub = kind.partition("/")
    if main in {"message", "multipart"}:  # whose content would have to be parsed
        main, sub = "application", "octet-stream"
    return b64decode(attachment.content), main, sub


def _listed(given: list[str] | str) -> tuple[Address, ...]:
    return tuple(mailbox(*read_mailbox(each)) for each in ([given] if isinstance(given, str) else given))
