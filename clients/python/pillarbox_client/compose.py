"""compose — makes an RFC 5322 message of a Message

Guarantees: pure: the same Message gives the same octets, boundaries included. ASCII alone, lines that end with CR LF,
    and no Bcc field. A raw message is returned as it is.
"""

from __future__ import annotations

import mimetypes
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from typing import Final

from pillarbox_client.message import Attachment, Message, address_of

_POLICY: Final = SMTP.clone(cte_type="7bit")
_UNKNOWN: Final = "application/octet-stream"


def compose(message: Message) -> bytes:
    """The message as it is to arrive."""
    if message.raw is not None:
        return message.raw
    made = EmailMessage(_POLICY)
    made["From"] = message.sender
    for name, mailboxes in (("To", message.to), ("Cc", message.cc), ("Reply-To", message.reply_to)):
        if mailboxes:
            made[name] = ", ".join(mailboxes)
    if message.subject is not None:
        made["Subject"] = message.subject
    made["Date"] = format_datetime(message.date)
    domain = address_of(message.sender).rpartition("@")[2]
    made["Message-ID"] = f"<{message.message_id}{'' if '@' in message.message_id else '@' + domain}>"
    if message.list_unsubscribe is not None:
        mailto = message.list_unsubscribe.mailto
        made["List-Unsubscribe"] = f"<{message.list_unsubscribe.url}>" + (f", <mailto:{mailto}>" if mailto else "")
        made["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    for name, value in message.headers.items():
        made[name] = value
    _body(made, message)
    for number, part in enumerate(part for part in made.walk() if part.is_multipart()):
        part.set_boundary("=_" + sha256(f"{message.message_id} {number}".encode()).hexdigest()[:32])
    return made.as_bytes()


def _body(made: EmailMessage, message: Message) -> None:
    inline = [each for each in message.attachments if each.content_id is not None]
    html = made
    if message.text is not None:
        made.set_content(message.text)
    if message.html is not None:
        if message.text is None:
            made.set_content(message.html, subtype="html")
        else:
            made.add_alternative(message.html, subtype="html")
            html = made.get_payload()[-1]  # type: ignore[index,assignment]
        for each in inline:
            html.add_related(each.content, *_type(each), filename=each.filename, cid=f"<{each.content_id}>")
    for each in message.attachments:
        if each.content_id is None or message.html is None:
            made.add_attachment(each.content, *_type(each), filename=each.filename)


def _type(attachment: Attachment) -> tuple[str, str]:
    kind = attachment.content_type or mimetypes.guess_type(attachment.filename)[0] or _UNKNOWN
    main, _, sub = kind.partition("/")
    return (main, sub) if main not in {"multipart", "message"} else ("application", "octet-stream")
