"""forms — what a client sends, and what it gets for it; field names as Resend's

Owns: the models of a message to send and of the answers.
Guarantees: a message that has the form can be composed: no value has a line end or another control character where one
    could begin a header field, and base64 is whole. Everything else is for policy.
See: RFC 5322 section 2.2 (what a field may hold), RFC 8058 (List-Unsubscribe with one click).
"""

import binascii
import json
import re
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    StrictBool,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from httpd.problems import ProblemForm
from httpd.sending.mailbox import Mailbox, read_mailbox
from shared.config.fields import matching
from shared.masking import show

MOST_MESSAGES: Final = 1000  # of one batch
_MOST_METADATA: Final = 65_000  # as enqueue's, and room for what is ours
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME: Final = re.compile(r"[!-9;-~]{1,76}")  # RFC 5322 section 2.2
_TYPE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}")
_HTTPS_ALLOWED: Final = "https:// and up to 900 printable ASCII characters but < and >"
_IN_BRACKETS: Final = r"^[!-;=?-~]+$"
#: Fields that others of the request make, or that MIME, the trace or delivery owns (in lower case).
_OWNED: Final = frozenset(
    {"from", "to", "cc", "bcc", "subject", "reply-to", "sender", "return-path", "received", "mime-version"}
    | {"content-type", "content-transfer-encoding", "content-disposition", "content-id", "list-unsubscribe"}
    | {"list-unsubscribe-post", "resent-from", "resent-to", "resent-cc", "resent-bcc", "dkim-signature"}
)


def _line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("has a control character; allowed: one line of text")
    return text


def _text(text: str) -> str:
    if "\0" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("has a NUL or half a character; allowed: text")
    return text


def _mailbox(text: str) -> str:
    read_mailbox(text)
    return text


def _octets(text: str) -> str:
    try:
        b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is not base64; allowed: RFC 4648 section 4, with its padding") from None
    return text


def _field_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{show(name)} is not the name of a header field; allowed: printable ASCII without a colon")
    if name.lower() in _OWNED:
        raise ValueError(f"{name} is made of other fields of the request; allowed: other fields")
    return name


def _media_type(text: str) -> str:
    if not _TYPE.fullmatch(text):
        raise ValueError("is not a media type; allowed: type/subtype without parameters, such as application/pdf")
    return text


def _in_brackets(text: str) -> str:
    if not re.fullmatch(_IN_BRACKETS, text):
        raise ValueError("cannot stand between < and >; allowed: printable ASCII characters but these two")
    return text


def _key(name: str) -> str:
    if name.startswith("_"):
        raise ValueError(f"{show(name)} is reserved; allowed: keys that do not begin with _")
    return _line(name)


Line = Annotated[str, AfterValidator(_line), Field(max_length=998)]
Address = Annotated[str, Field(max_length=998), AfterValidator(_mailbox)]  # its reader keeps what it has read
Base64 = Annotated[str, AfterValidator(_octets)]
Key = Annotated[str, AfterValidator(_key), Field(min_length=1, max_length=255)]
_Several = Annotated[list[Address], Field(max_length=1000)]
_ADDRESS: Final = TypeAdapter[str](Address)
_SEVERAL: Final = TypeAdapter[list[str]](_Several)


def _addresses(given: object) -> list[str] | str:
    """Check one address or a list of them. A union of both types would report a wrong address once for each."""
    if isinstance(given, str):
        return _ADDRESS.validate_python(given)
    if isinstance(given, list):
        return _SEVERAL.validate_python(given)
    raise ValueError("is not an address; allowed: an address, or an array of addresses")


Addresses = Annotated[_Several | Address, PlainValidator(_addresses, json_schema_input_type=_Several | Address)]

_LARGEST: Final = 2**63 - 1


def _scalar(given: object, union: ValidatorFunctionWrapHandler) -> object:
    try:
        return union(given)
    except ValidationError:
        raise ValueError(
            "is not a value of metadata; allowed: a line of up to 1000 characters, a whole number of 64 bits, "
            "another number up to 1e300, true or false"
        ) from None


Scalar = Annotated[
    Annotated[Line, Field(max_length=1000)]
    | StrictBool
    | Annotated[int, Field(strict=True, ge=-_LARGEST, le=_LARGEST)]
    | Annotated[float, Field(strict=True, ge=-1e300, le=1e300)],
    WrapValidator(_scalar),
]


class _Form(BaseModel):
    """These fields and no others: one that is misspelt would be left out of the mail."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, allow_inf_nan=False)


class Attachment(_Form):
    """A file that goes with the message, or an image that its HTML shows."""

    content: Base64 = Field(description="The file, in base64.")
    filename: Annotated[Line, Field(min_length=1, max_length=255)] = Field(description="Its name.")
    content_type: Annotated[str, AfterValidator(_media_type)] | None = Field(
        None, description="Its media type; without it, by the name's end."
    )
    content_id: (
        Annotated[str, matching(r"[A-Za-z0-9._%+@-]{1,128}", "1 to 128 letters, digits and . _ % + @ -")] | None
    ) = Field(None, description="For an inline image: the HTML shows it as cid:ID.")


class Tag(_Form):
    """A name and a value by which mail is found: metadata.NAME in conditions."""

    name: Key = Field(description="The name.")
    value: Annotated[Line, Field(max_length=255)] = Field(description="The value.")


class Unsubscribe(_Form):
    """Where a recipient leaves the list with one click (RFC 8058)."""

    url: Annotated[str, matching(r"https://[!-;=?-~]{1,900}", _HTTPS_ALLOWED)] = Field(
        description="An https address that takes a POST of List-Unsubscribe=One-Click."
    )
    mailto: (
        Annotated[Address, AfterValidator(_in_brackets), Field(json_schema_extra={"pattern": _IN_BRACKETS})] | None
    ) = Field(None, description="An address that unsubscribes as well.")


class Send(_Form):
    """A message to send: in parts, or `raw` with the envelope."""

    sender: Address = Field(alias="from", description="Name <address>, or an address. The envelope's sender too.")
    to: Addresses = Field(description="Recipients.")
    cc: Addresses | None = Field(None, description="Recipients who are shown as copied.")
    bcc: Addresses | None = Field(None, description="Recipients who are not shown.")
    reply_to: Addresses | None = Field(None, description="Where answers go.")
    subject: Line | None = Field(None, description="The subject.")
    text: Annotated[str, AfterValidator(_text)] | None = Field(None, description="The body as plain text.")
    html: Annotated[str, AfterValidator(_text)] | None = Field(None, description="The body as HTML.")
    headers: dict[Annotated[str, AfterValidator(_field_name)], Line] | None = Field(
        None, description="More header fields.", max_length=100
    )
    attachments: Annotated[list[Attachment], Field(max_length=100)] | None = Field(None, description="Files.")
    tags: Annotated[list[Tag], Field(max_length=50)] | None = Field(
        None, description="Names with values, to find it by."
    )
    metadata: dict[Key, Scalar] | None = Field(
        None,
        description="The same as one object; conditions have metadata.KEY, webhooks and history show it.",
        max_length=50,
    )
    scheduled_at: AwareDatetime | None = Field(
        None, description="When it is to be sent; past: at once. ISO 8601 with its offset."
    )
    priority: int = Field(0, ge=-9, le=9, description="Above 0 urgent, below 0 bulk.")
    list_unsubscribe: Unsubscribe | None = Field(None, description="List-Unsubscribe with one click.")
    raw: Base64 | None = Field(
        None,
        description="The whole message by RFC 5322, in base64; `from` and `to` are then its envelope, and of the other "
        "fields only tags, metadata, scheduled_at and priority may be given.",
    )

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.raw is not None:
            own = ("cc", "bcc", "reply_to", "subject", "text", "html", "headers", "attachments", "list_unsubscribe")
            if given := [name for name in own if getattr(self, name) is not None]:
                raise ValueError(f"raw and {given[0]} exclude each other; allowed: raw with its envelope, or parts")
        elif self.text is None and self.html is None:
            raise ValueError("text, html and raw are all missing; allowed: text, html or both; or raw")
        if self.headers is not None or self.tags is not None or self.metadata is not None:
            self._names_each_once()
        return self

    def _names_each_once(self) -> None:
        lowered = [name.lower() for name in self.headers or ()]
        if twice := {name for name in lowered if lowered.count(name) > 1}:
            raise ValueError(f"headers has {show(min(twice))} twice; allowed: each name once, in any case")
        if len(json.dumps(self.own_metadata)) > _MOST_METADATA:
            raise ValueError(
                f"tags and metadata are too large together; allowed: up to {_MOST_METADATA} octets of JSON"
            )
        names = [*(tag.name for tag in self.tags or ()), *(self.metadata or ())]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"tags and metadata have {show(min(twice))} twice; allowed: each name once")

    @property
    def recipients(self) -> list[tuple[str, Mailbox]]:
        """Every recipient, with its place in the request."""
        found = []
        for name in ("to", "cc", "bcc"):
            given = getattr(self, name)
            if isinstance(given, str):
                found.append((name, read_mailbox(given)))
            else:
                found += [(f"{name}[{number}]", read_mailbox(each)) for number, each in enumerate(given or ())]
        return found

    @property
    def own_metadata(self) -> dict[str, object]:
        """Tags and metadata together."""
        return {**{tag.name: tag.value for tag in self.tags or ()}, **(self.metadata or {})}


class Sent(BaseModel):
    """A message that is committed to the queue."""

    id: UUID = Field(description="Its number: GET /v1/messages/{id} tells what became of it.")


class BatchAnswer(BaseModel):
    """The answer to one message of a batch."""

    status: int = Field(description="As if it had been sent alone.")
    id: UUID | None = Field(None, description="Its number, if it is committed.")
    problem: ProblemForm | None = Field(None, description="Why it is not.")


class BatchSent(BaseModel):
    """The answers to a batch, in its order."""

    data: list[BatchAnswer] = Field(description="One for each message.")


class Reschedule(_Form):
    """Another time for a message that waits."""

    scheduled_at: AwareDatetime = Field(description="When it is to be sent; past: at once.")


class Changed(BaseModel):
    """What was changed of a message."""

    id: UUID = Field(description="The message.")
    recipients: int = Field(description="How many of its recipients.")


SEND: Final = TypeAdapter(Send)
BATCH: Final[TypeAdapter[list[Any]]] = TypeAdapter(list[Any])


def ahead(at: datetime | None) -> timedelta | None:
    """How far ahead a time is; None where it is now or past."""
    left = None if at is None else at - datetime.now(UTC)
    return left if left is not None and left > timedelta() else None
