"""messages — a message, and what became of it"""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter

from httpd.access.caller import Caller
from httpd.access.needs import needs
from operate.queue.message import message
from operate.shapes.message import Message

router = APIRouter(prefix="/v1/messages", tags=["messages"])


@router.get("/{id}")
async def show(id: UUID, caller: Annotated[Caller, needs("read", "send")]) -> Message:  # noqa: A002 - its name in the path
    """A message: its recipients, their states, every try and its reply.

    With the scope `read`, any message; with `send` alone, those that were sent in the name of the key's principal.
    """
    async with caller.acting() as connection:
        return await message(connection, id, own=not caller.may("read"))
