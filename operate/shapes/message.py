"""message — the form of one message with what became of it"""

from datetime import datetime
from typing import Any
from uuid import UUID

from operate.shapes.mail import Attempt
from operate.shapes.shape import Shape, meaning


class MessageRecipient(Shape):
    """A recipient of a message, as it is queued or finished."""

    id: int = meaning("The recipient's number.")
    address: str = meaning("The address.")
    state: str = meaning(
        "What it waits for: hold, scheduled, active, sending, defer, delete, bounce; or how it finished: success, "
        "rejected, failed, expired, lock_expired, deleted, bounced."
    )
    retry_count: int = meaning("How often it was tried.")
    next_retry: datetime | None = meaning("When it is due, if it waits for that.")
    finished: datetime | None = meaning("When it finished; null: it is queued.")
    last_error: str | None = meaning("Why the last try failed.")
    metadata: dict[str, Any] = meaning("What the sender or policy set.")
    attempts: list[Attempt] = meaning("Every try, the first first.")


class Message(Shape):
    """A message and what became of it."""

    id: UUID = meaning("Our own number of the message.")
    message_id: str | None = meaning("The Message-ID in its header, without angle brackets.")
    subject: str | None = meaning("Its subject, the first 200 characters.")
    sender: str = meaning("The envelope sender; empty is the null sender.")
    principal: str | None = meaning("In whose name it was sent.")
    received: datetime = meaning("When it was accepted, or is to be sent.")
    size: int = meaning("Its octets.")
    priority: int = meaning("-9 to 9; above 0 urgent, below 0 bulk.")
    recipients: list[MessageRecipient] = meaning("Each recipient.")
