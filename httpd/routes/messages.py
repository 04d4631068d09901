"""messages — sends mail, and tells what became of it"""

from http import HTTPStatus
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Request
from starlette.responses import Response

from httpd import requests
from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import After, Condition, Limit
from httpd.sending.forms import MOST_MESSAGES, BatchSent, Changed, Reschedule, Sent
from operate.queue import message
from operate.shapes.asked import Page
from operate.shapes.mail import Recipient
from operate.shapes.message import Message

router = APIRouter(prefix="/v1/messages", tags=["messages"])

_KEY: Final[dict[str, Any]] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same request again under the same key, within a day (maintenance.keep.idempotency), is not "
    "sent again, but answered as the first was.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[ -~]+$"},
}
_SEND: Final = {"$ref": "#/components/schemas/Send"}
_JSON: Final = "application/json"


def _envelope(name: str, schema: dict[str, Any], text: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": f"With message/rfc822: {text}", "schema": schema}


_ENVELOPE: Final = [
    _envelope("from", {"type": "string"}, "the envelope's sender."),
    _envelope("to", {"type": "array", "items": {"type": "string"}}, "a recipient; may be given again."),
    _envelope("scheduled_at", {"type": "string", "format": "date-time"}, "when it is to be sent."),
    _envelope("priority", {"type": "integer", "minimum": -9, "maximum": 9}, "above 0 urgent, below 0 bulk."),
]


@router.post(
    "",
    status_code=HTTPStatus.ACCEPTED,
    response_model=Sent,
    dependencies=[needs("send")],
    openapi_extra={
        "parameters": [_KEY, *_ENVELOPE],
        "requestBody": {
            "required": True,
            "content": {_JSON: {"schema": _SEND}, "message/rfc822": {"schema": {"type": "string"}}},
        },
    },
)
async def send(request: Request) -> Response:
    """Send a message: in parts, or raw.

    202 means that it is committed to the queue for all its recipients. It passes the same policy, limits and rights as
    mail by SMTP. The body is JSON, or the message itself as message/rfc822 with its envelope in the query.
    """
    id_, again = await requests.one(request)
    return _sent(Sent(id=id_).model_dump_json(), HTTPStatus.ACCEPTED, again=again)


@router.post(
    "/batch",
    status_code=HTTPStatus.ACCEPTED,
    response_model=BatchSent,
    dependencies=[needs("send")],
    responses={207: {"model": BatchSent, "description": "Not all of them are committed"}},
    openapi_extra={
        "parameters": [_KEY],
        "requestBody": {
            "required": True,
            "content": {
                _JSON: {"schema": {"type": "array", "items": _SEND, "minItems": 1, "maxItems": MOST_MESSAGES}},
            },
        },
    },
)
async def send_batch(request: Request) -> Response:
    """Send up to 1,000 messages, each with its own answer.

    202 means that all are committed, 207 that some are not: the answers say which, and why. Under an Idempotency-Key
    the same batch can be sent again: what is committed is not sent again, and the rest is.
    """
    answers = await requests.batch(request)
    whole = all(each.status == HTTPStatus.ACCEPTED for each in answers)
    content = BatchSent(data=answers).model_dump_json(exclude_none=True)
    return _sent(content, HTTPStatus.ACCEPTED if whole else HTTPStatus.MULTI_STATUS)


def _sent(content: str, status: HTTPStatus, *, again: bool = False) -> Response:
    headers = {"Idempotent-Replayed": "true"} if again else None
    return Response(content, status, headers, _JSON)


#: What httpd/direct.py answers: each judges its caller and reads its request itself.
DIRECT: Final = {("POST", "/v1/messages"): send, ("POST", "/v1/messages/batch"): send_batch}


@router.get("", name="list")
async def list_queued(
    caller: Annotated[Caller, needs("read", "send")],
    condition: Condition = "",
    after: After = 0,
    limit: Limit = 50,
) -> Page[Recipient]:
    """Recipients in the queue that fit a condition, in the order they came, a page at a time.

    With the scope `read`, of any mail; with `send` alone, of what the key's principal has sent by HTTP or `enqueue`.
    """
    async with caller.acting() as connection:
        rows = await message.listed(connection, condition, own=not caller.may("read"), after=after, limit=limit)
    found = [Recipient.from_row(row) for row in rows]
    return Page[Recipient](data=found, next=str(found[-1].id) if len(found) == limit else None)


@router.get("/{id}")
async def show(id: UUID, caller: Annotated[Caller, needs("read", "send")]) -> Message:  # noqa: A002 - its name in the path
    """A message: its recipients, their states, every try and its reply.

    With the scope `read`, any message; with `send` alone, those that the key's principal has sent by HTTP or `enqueue`.
    """
    async with caller.acting() as connection:
        return await message.message(connection, id, own=not caller.may("read"))


@router.patch("/{id}")
async def reschedule(id: UUID, wanted: Reschedule, caller: Annotated[Caller, needs("send")]) -> Changed:  # noqa: A002
    """Send a message that was not tried yet at another time. It must be the principal's own."""
    async with caller.acting() as connection:
        return Changed(id=id, recipients=await message.reschedule(connection, id, wanted.scheduled_at))


@router.post("/{id}/cancel")
async def cancel(id: UUID, caller: Annotated[Caller, needs("send")]) -> Changed:  # noqa: A002
    """Cancel what is left of a message: recipients that are delivered stay so. It must be the principal's own."""
    async with caller.acting() as connection:
        return Changed(id=id, recipients=await message.cancel(connection, id))
