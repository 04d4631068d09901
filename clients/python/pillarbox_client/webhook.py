"""webhook — verifies what Pillarbox sends to an endpoint, by the Standard Webhooks specification

Guarantees: pure: no clock where `now` is given, no I/O. A signature is compared in constant time with each of the
    secrets, of which there may be several while one replaces another. No secret is in an error.
Raises: Refused, with the reason; answer such a request with 400 and do nothing.
See: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import hmac
import time
from datetime import datetime  # noqa: TC003 - pydantic reads it
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TOLERANCE: Final = 300  # seconds, as the specification's libraries have it
_PREFIX: Final = "whsec_"
_DIGITS: Final = 15
_LEAST, _MOST = 24, 64  # octets, by the specification


class Refused(ValueError):
    """The request is not from Pillarbox, or not from now; the text says why."""


class Event(BaseModel):
    """What happened. `id` is the same whenever the request is sent again: keep it to take each event once."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str = ""
    type: str
    timestamp: datetime
    data: Any

    @property
    def events(self) -> list[Event]:
        """The events of a batch, in order; of any other, itself."""
        return [Event.model_validate(each) for each in self.data] if self.type == "batch" else [self]


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: str | Iterable[str],
    *,
    tolerance: float = TOLERANCE,
    now: float | None = None,
) -> Event:
    """The event of a request, if it was signed with one of these secrets (whsec_…) within `tolerance` seconds."""
    found = {name.lower(): value for name, value in headers.items()}
    try:
        id_, at, signatures = (found[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        raise Refused(f"the header {missing} is missing") from None
    if not (at.isascii() and at.isdigit() and len(at) <= _DIGITS):  # int() raises for thousands of digits
        raise Refused("webhook-timestamp is not a number of seconds")
    if abs((time.time() if now is None else now) - int(at)) > tolerance:
        raise Refused(f"webhook-timestamp is more than {tolerance:g} s away")
    signed = f"{id_}.{at}.".encode() + body
    given = [each.removeprefix("v1,").encode() for each in signatures.split() if each.startswith("v1,")]
    keys = [_key(secret) for secret in ([secrets] if isinstance(secrets, str) else secrets)]
    right = [base64.b64encode(hmac.digest(key, signed, "sha256")) for key in keys]
    if not any([hmac.compare_digest(one, other) for one in right for other in given]):  # noqa: C419 - all are compared
        raise Refused("no signature is of one of these secrets")
    try:
        return Event.model_validate_json(body).model_copy(update={"id": id_})
    except ValidationError as error:
        raise Refused(f"the body is not an event: {error.errors()[0]['msg']}") from None


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:  # binascii.Error, and what b64decode says of text beyond ASCII
        key = b""
    if not _LEAST <= len(key) <= _MOST:
        raise ValueError("a secret of webhooks is not one; allowed: whsec_ and 24 to 64 octets in base64")
    return key
