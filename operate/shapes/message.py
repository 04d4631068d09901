"""message — the form of one message with what became of it"""

from datetime import datetime
from typing import Any
from uuid import UUID

from operate.shapes.shape import Shape, meaning


class Try(Shape):
    """One try at a recipient."""

    ts: datetime = meaning("When it ended.")
    retry_count: int = meaning("Which try it was.")
    worker: str | None = meaning("Who tried.")
    remote: str | None = meaning("The host.")
    outcome: str = meaning("delivered, deferred, failed, or lease_expired where the worker died.")
    scope: str | None = meaning("What the outcome is about: recipient, message, destination or us.")
    uncertain: bool | None = meaning("Whether the host may have accepted the message.")
    reply_code: int | None = meaning("The code of the reply.")
    reply_text: str | None = meaning("The text of the reply or failure.")
    tls: str | None = meaning("The TLS version and cipher.")
    source: str | None = meaning("Our own address.")
    seconds: float | None = meaning("How long it took.")


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
    attempts: list[Try] = meaning("Every try, the first first.")


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
