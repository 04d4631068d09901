"""report — a notification before it is written: its addressee, and the results of its recipients

Guarantees: values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    from shared.mail.message import Address

#: RFC 3464 section 2.3.3; its `expanded` is for mailing lists, and we have none.
type Kind = Literal["failed", "delayed", "delivered", "relayed"]


class RecipientReport(NamedTuple):
    """One recipient and what happened to it."""

    recipient: Address
    metadata: Mapping[str, Any] | None
    remote: str | None  # as in attempts: host:port or name[address]:port
    code: int | None  # of the reply; None: there was none
    status: str | None  # RFC 3463
    text: str | None
    at: datetime
    until: datetime | None = None  # how long it is still tried


class Original(NamedTuple):
    """The message it is about."""

    id: UUID
    sender: Address
    arrived: datetime
    content: bytes | None  # perhaps cut off at the end; None: there is none any more
    size: int  # of all of it
    smtputf8: bool


@dataclass(frozen=True, slots=True)
class Manner:
    """How the operator wants notifications to be."""

    hostname: str
    name: str
    address: str
    size: int  # the largest message returned whole
    texts: Mapping[str, str]  # by kind, where they are not built in
