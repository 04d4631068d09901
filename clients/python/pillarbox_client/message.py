"""message — a message to send, as an application says it

Owns: the schema. The names of fields are those of Resend's API; `raw` is a message that is composed already.
Guarantees: an address has no control characters, and no value has a line end where it could begin a header field.
Raises: pydantic's ValidationError, which names the field.
See: pillarbox_client/compose.py, which makes an RFC 5322 message of it.
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime
from email.utils import parseaddr
from typing import Annotated, Any, Final, Self
from uuid import uuid4

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME: Final = re.compile(r"[!-9;-~]{1,76}")  # RFC 5322 section 2.2
#: Fields that others make.
_OWNED: Final = frozenset(
    {"from", "to", "cc", "bcc", "subject", "reply-to", "sender", "date", "message-id", "mime-version", "content-type"}
    | {"content-transfer-encoding", "content-disposition", "content-id", "list-unsubscribe", "list-unsubscribe-post"}
)


def address_of(mailbox: str) -> str:
    """The address of `Name <address>` or of an address alone."""
    return parseaddr(mailbox)[1]


def _line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("has a control character; allowed: one line of text")
    return text


def _mailbox(text: str) -> str:
    localpart, _, domain = address_of(_line(text)).rpartition("@")
    if not localpart or not domain:
        raise ValueError(f"{text[:100]!r} is not an address; allowed: user@example.com or Name <user@example.com>")
    if "=?" in text:  # composed, it would be decoded, and a comma in it would begin another mailbox
        raise ValueError(f"{text[:100]!r} has an encoded word; allowed: the name as it is read")
    return text


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _field(name: str) -> str:
    if not _NAME.fullmatch(name) or name.lower() in _OWNED:
        raise ValueError(f"{name[:80]!r} cannot be set here; allowed: names of fields that no other value makes")
    return name


def _own(name: str) -> str:
    if name.startswith("_"):
        raise ValueError(f"{name!r} is reserved; allowed: keys that do not begin with _")
    return _line(name)


Line = Annotated[str, AfterValidator(_line), Field(max_length=998)]
Mailbox = Annotated[str, AfterValidator(_mailbox), Field(max_length=998)]
Mailboxes = Annotated[list[Mailbox], BeforeValidator(_several)]
Key = Annotated[str, AfterValidator(_own), Field(min_length=1, max_length=255)]
Octets = Annotated[bytes, PlainSerializer(lambda octets: b64encode(octets).decode(), when_used="json-unless-none")]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Attachment(_Form):
    """A file, or an image that the HTML shows as `cid:content_id`."""

    filename: Annotated[Line, Field(min_length=1, max_length=255)]
    content: Octets
    content_type: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w!#$&^.+-]*/[A-Za-z0-9][\w!#$&^.+-]*$")] | None = None
    content_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._%+@-]{1,128}$")] | None = None


class Tag(_Form):
    """A name and a value by which mail is found: `metadata.NAME` in conditions."""

    name: Key
    value: Annotated[Line, Field(max_length=255)] = ""


class Unsubscribe(_Form):
    """Where a recipient leaves the list with one click (RFC 8058)."""

    url: Annotated[Line, Field(pattern=r"^https://[!-;=?-~]{1,900}$")]
    mailto: Mailbox | None = None


class Message(_Form):
    """A message: in parts, or `raw` for the recipients in `to`.

    `date` and `message_id` are of the object, not of the moment it is sent: the same object sent again under an
    idempotency key is the same message.
    """

    sender: Mailbox = Field(validation_alias=AliasChoices("from", "sender"), serialization_alias="from")
    to: Mailboxes = Field(min_length=1)
    cc: Mailboxes = []
    bcc: Mailboxes = []
    reply_to: Mailboxes = []
    subject: Line | None = None
    text: str | None = None
    html: str | None = None
    headers: dict[Annotated[str, AfterValidator(_field)], Line] = {}
    attachments: list[Attachment] = []
    tags: list[Tag] = []
    metadata: dict[Key, str | bool | int | float] = {}
    scheduled_at: AwareDatetime | None = None
    priority: Annotated[int, Field(ge=-9, le=9)] = 0
    list_unsubscribe: Unsubscribe | None = None
    raw: Octets | None = None
    date: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC), exclude=True)
    message_id: Annotated[str, Field(pattern=r"^[!-;=?A-Z\[\]^-~]{1,250}$")] = Field(
        default_factory=lambda: str(uuid4()), exclude=True
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.raw is not None:
            parts = ("cc", "bcc", "reply_to", "subject", "text", "html", "headers", "attachments", "list_unsubscribe")
            if given := [name for name in parts if getattr(self, name)]:
                raise ValueError(f"raw and {given[0]} exclude each other; allowed: raw with from and to, or parts")
        elif self.text is None and self.html is None:
            raise ValueError("text, html and raw are all missing; allowed: text, html or both; or raw")
        names = [*(tag.name for tag in self.tags), *self.metadata]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"tags and metadata have {min(twice)!r} twice; allowed: each name once")
        return self

    @property
    def recipients(self) -> list[str]:
        """The address of every recipient, each once."""
        return list(dict.fromkeys(address_of(each) for each in [*self.to, *self.cc, *self.bcc]))

    @property
    def own_metadata(self) -> dict[str, str | bool | int | float]:
        """Tags and metadata together."""
        return {**{tag.name: tag.value for tag in self.tags}, **self.metadata}
