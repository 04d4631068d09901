"""django — an e-mail backend that queues mail in the application's own transaction

    MAILERS = {"default": {"BACKEND": "pillarbox_client.django.SqlBackend", "OPTIONS": {"database": "default"}}}

Owns: the backend, and what django-anymail adds to Django's messages: metadata, tags, send_at, envelope_sender,
    esp_extra (idempotency_key, priority, transport, job) and, afterwards, anymail_status.
Guarantees: in an atomic block the mail is sent if, and only if, the block commits. What a message asks and Pillarbox
    does not do is refused, not left out.
Raises: UnsupportedFeature, pydantic's ValidationError, and what Django raises where PostgreSQL refuses; none of them
    where `fail_silently` is true. Each message is in a savepoint, so one that is refused leaves the transaction usable.
See: https://anymail.dev/en/stable/sending/anymail_additions/; pillarbox_client/django_http.py
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from email.policy import SMTP
from typing import TYPE_CHECKING, Any, Final

from django.core.mail.backends.base import BaseEmailBackend
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, transaction
from django.utils import timezone

from pillarbox_client.message import Message, Tag, address_of
from pillarbox_client.sql import send

if TYPE_CHECKING:
    from collections.abc import Sequence

_REFUSED: Final = (
    *("merge_data", "merge_metadata", "merge_headers", "merge_global_data", "template_id"),
    *("track_clicks", "track_opens"),
)
_EXTRA: Final = ("idempotency_key", "job", "priority", "transport")


class UnsupportedFeature(ValueError):
    """The message asks for something that Pillarbox does not do."""


@dataclass(slots=True)
class RecipientStatus:
    """What is known of one recipient when the message was sent."""

    message_id: str
    status: str


@dataclass(slots=True)
class Status:
    """The `anymail_status` of a message."""

    message_id: str | None = None
    status: set[str] = field(default_factory=set)
    recipients: dict[str, RecipientStatus] = field(default_factory=dict)
    esp_response: Any = None


class Backend(BaseEmailBackend):
    """What backends have in common, however the mail gets to Pillarbox."""

    refusals: tuple[type[Exception], ...] = (ValueError,)  # pydantic's error is one

    def __init__(self, *, fail_silently: bool = False, **other: Any) -> None:
        super().__init__(**other)
        self.fail_silently = fail_silently

    def send_messages(self, email_messages: Sequence[Any]) -> int:
        """How many were queued."""
        return sum(self._sent(each) for each in email_messages)

    def queued(self, message: Message, options: dict[str, Any]) -> str:
        """Queue the message; its id."""
        raise NotImplementedError

    def _sent(self, email: Any) -> bool:
        if not email.recipients():
            return False
        try:
            message, options = read(email)
            id_ = self.queued(message, options)
        except self.refusals:
            if not self.fail_silently:
                raise
            email.anymail_status = Status(status={"failed"})
            return False
        one = {each: RecipientStatus(id_, "queued") for each in message.recipients}
        email.anymail_status = Status(id_, {"queued"}, one)
        return True


class SqlBackend(Backend):
    """Queues each message by `pillarbox.enqueue` on the connection that Django uses."""

    refusals = (ValueError, DatabaseError)

    def __init__(self, *, database: str = DEFAULT_DB_ALIAS, **other: Any) -> None:
        super().__init__(**other)
        self.database = database  # the alias of the one that Pillarbox is in

    def queued(self, message: Message, options: dict[str, Any]) -> str:
        """Queue the message in the transaction that is open; its id."""
        with transaction.atomic(using=self.database), connections[self.database].cursor() as cursor:
            return str(send(cursor, message, **options))


def read(email: Any) -> tuple[Message, dict[str, Any]]:
    """A message of Django as one of ours, and the options of `send`."""
    if asked := [name for name in _REFUSED if getattr(email, name, None)]:
        raise UnsupportedFeature(f"{asked[0]} is not supported; allowed: metadata, tags, send_at, envelope_sender")
    extra = dict(getattr(email, "esp_extra", None) or {})
    if stray := sorted(extra.keys() - set(_EXTRA)):
        raise UnsupportedFeature(f"esp_extra has {stray[0]!r}; allowed: {', '.join(_EXTRA)}")
    message = Message(
        sender=getattr(email, "envelope_sender", None) or address_of(email.from_email),
        to=[address_of(each) for each in email.recipients()],
        raw=email.message(policy=SMTP).as_bytes(),
        tags=[Tag(name=str(each), value="true") for each in getattr(email, "tags", None) or ()],
        metadata=dict(getattr(email, "metadata", None) or {}),
        scheduled_at=_time(getattr(email, "send_at", None)),
        priority=extra.pop("priority", 0),
    )
    return message, extra


def _time(at: dt.datetime | dt.date | float | str | None) -> dt.datetime | None:
    """As anymail reads send_at: a time, a day in the current time zone, seconds since 1970, or ISO 8601."""
    if isinstance(at, str):
        at = dt.datetime.fromisoformat(at)
    elif isinstance(at, (int, float)):
        return dt.datetime.fromtimestamp(at, dt.UTC)
    elif isinstance(at, dt.date) and not isinstance(at, dt.datetime):
        at = dt.datetime(at.year, at.month, at.day)  # noqa: DTZ001 - the time zone follows
    return at if at is None or timezone.is_aware(at) else timezone.make_aware(at)
