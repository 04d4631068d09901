"""emails — the same as messages, as Resend's clients speak it

Owns: the translation of their requests and of our answers; the errors' form is in httpd/problems.py.
Guarantees: nothing is sent otherwise than by /v1/messages. What we do not have, such as a file by its address or a time
    in words, is refused and not left out.
See: https://resend.com/docs/api-reference; tests/integration/httpd/test_resend.py, where their library speaks to us.
"""

from base64 import b64encode
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

from httpd import problems, requests
from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.sending.forms import Sent
from operate.queue import message
from operate.shapes.message import Message
from shared.mail.results import DEAD

router = APIRouter(prefix="/emails", tags=["as Resend"], responses=problems.as_json())

_SEND: Final = {"$ref": "#/components/schemas/Send"}
_OBJECT: Final[TypeAdapter[dict[str, Any]]] = TypeAdapter(dict[str, Any])
_LARGEST_OCTET: Final = 255


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class Invalid(BaseModel):
    """A message of a batch that is not sent."""

    index: int = Field(description="Which.")
    message: str = Field(description="Why.")


class Batch(BaseModel):
    """The answers to a batch."""

    data: list[Sent] = Field(description="Those that are committed, in their order.")
    errors: list[Invalid] = Field(description="Those that are not.")


class Update(BaseModel):
    """Another time."""

    scheduled_at: AwareDatetime = Field(description="When it is to be sent.")


class ChangedEmail(BaseModel):
    """The message that was changed."""

    object: str = Field("email", description="email.")
    id: UUID = Field(description="Its number.")


class Email(ChangedEmail):
    """A message and what became of it."""

    sender: str = Field(alias="from", description="The envelope's sender.")
    to: list[str] = Field(description="Its recipients.")
    created_at: datetime = Field(description="When it was accepted, or is to be sent.")
    subject: str | None = Field(description="Its subject.")
    last_event: str = Field(description="scheduled, queued, delivered, bounced or canceled.")


@router.post("", dependencies=[needs("send")], openapi_extra=_body(_SEND))
async def send(request: Request) -> Sent:
    """As POST /v1/messages."""
    try:
        given = _OBJECT.validate_json(await requests.whole(request))
    except ValidationError as error:
        raise problems.invalid(error.errors(include_url=False), "body") from None
    id_, _ = await requests.one(request, translated(given))
    return Sent(id=id_)


@router.post("/batch", dependencies=[needs("send")], openapi_extra=_body({"type": "array", "items": _SEND}))
async def send_batch(request: Request) -> Batch:
    """As POST /v1/messages/batch; unless x-batch-validation is permissive, nothing is sent if one has not the form."""
    strict = request.headers.get("x-batch-validation", "strict") != "permissive"
    answers = await requests.batch(request, translated, strict=strict)
    data = [Sent(id=each.id) for each in answers if each.id is not None]
    errors = [
        Invalid(index=index, message=each.problem.detail)
        for index, each in enumerate(answers)
        if each.problem is not None
    ]
    return Batch(data=data, errors=errors)


@router.get("/{id}", response_model_by_alias=True)
async def show(id: UUID, caller: Annotated[Caller, needs("read", "send")]) -> Email:  # noqa: A002 - its name in the path
    """As GET /v1/messages/{id}, in short."""
    async with caller.acting() as connection:
        found = await message.message(connection, id, own=not caller.may("read"))
    return Email.model_validate(
        {
            "id": id,
            "from": found.sender,
            "to": [each.address for each in found.recipients],
            "created_at": found.received,
            "subject": found.subject,
            "last_event": last_event(found),
        }
    )


@router.patch("/{id}")
async def update(id: UUID, wanted: Update, caller: Annotated[Caller, needs("send")]) -> ChangedEmail:  # noqa: A002
    """As PATCH /v1/messages/{id}."""
    async with caller.acting() as connection:
        await message.reschedule(connection, id, wanted.scheduled_at)
    return ChangedEmail(object="email", id=id)


@router.post("/{id}/cancel")
async def cancel(id: UUID, caller: Annotated[Caller, needs("send")]) -> ChangedEmail:  # noqa: A002
    """As POST /v1/messages/{id}/cancel."""
    async with caller.acting() as connection:
        await message.cancel(connection, id)
    return ChangedEmail(object="email", id=id)


def translated(given: Any) -> Any:
    """A message as their clients write it, as we do: a file may be a list of octets, and null is what is left out."""
    if not isinstance(given, dict):
        return given
    ours = {name: value for name, value in given.items() if value is not None}
    files = ours.get("attachments")
    if isinstance(files, list):
        ours["attachments"] = [_file(each) for each in files]
    return ours


def _file(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    content = given.get("content")
    if isinstance(content, list) and all(isinstance(each, int) and 0 <= each <= _LARGEST_OCTET for each in content):
        return {**given, "content": b64encode(bytes(content)).decode()}
    return given


def last_event(found: Message) -> str:
    """What became of it in one word."""
    states = {each.state for each in found.recipients}
    for word, of_them in (
        ("bounced", {*DEAD, "bounced", "bounce"}),
        ("queued", {"active", "sending", "defer", "hold"}),
        ("scheduled", {"scheduled"}),
        ("canceled", {"deleted", "delete"}),
    ):
        if states & of_them:
            return word
    return "delivered" if states == {"success"} else "queued"
