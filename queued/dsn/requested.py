"""requested — the requests of submitters, read back from queue.metadata

Owns: reading the reserved keys `_dsn`, the wanted notifications, `_requiretls` and `_tlsrequired`. Pure.
Guarantees: no exception for any content of the column: a value that is not in the form of shared.mail.message counts as
    not given.
See: shared/mail/message.py, which writes it; RFC 3461 sections 4.1 to 4.4; RFC 8689; sql/README.md, "Reserved
    metadata".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from shared.mail.dsn import NOTIFY, RET
from shared.mail.message import MessageDsn, RecipientDsn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queued.values import Result

_NOTIFY: Final = NOTIFY | {"NEVER"}
_PAIR: Final = 2  # type and address


def of_message(metadata: Mapping[str, Any] | None) -> MessageDsn:
    """RET and ENVID (RFC 3461 sections 4.3, 4.4)."""
    asked = _asked(metadata)
    ret, envid = asked.get("ret"), asked.get("envid")
    return MessageDsn(ret if ret in RET else None, envid if _is_line(envid) else None)


def of_recipient(metadata: Mapping[str, Any] | None) -> RecipientDsn | None:
    """NOTIFY and ORCPT (RFC 3461 sections 4.1, 4.2); None if both are absent."""
    asked = _asked(metadata)
    notify, orcpt = asked.get("notify"), asked.get("orcpt")
    words = frozenset(word for word in notify if word in _NOTIFY) if isinstance(notify, list) else None
    pair = orcpt if isinstance(orcpt, list) and len(orcpt) == _PAIR and all(map(_is_line, orcpt)) else None
    address = (str(pair[0]), str(pair[1])) if pair else None
    return RecipientDsn(words or None, address) if words or address else None


def requiretls(metadata: Mapping[str, Any] | None) -> bool:
    """REQUIRETLS (RFC 8689 section 2)."""
    return (metadata or {}).get("_requiretls") is True


def tls_optional(metadata: Mapping[str, Any] | None) -> bool:
    """TLS-Required: No (RFC 8689 section 3)."""
    return (metadata or {}).get("_tlsrequired") == "no"


def _asked(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    asked = (metadata or {}).get("_dsn")
    return asked if isinstance(asked, dict) else {}


def _is_line(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()


type Notice = Literal["failed", "delayed", "delivered", "relayed"]

_UNSAID: Final = ("FAILURE", "DELAY")  # RFC 3461 section 4.1: what holds is ours to say where NOTIFY is left out


def notice(result: Result) -> Notice | None:
    """The notification that the sender gets of this result.

    `relayed` is all we can say of a success by SMTP: whether the next host delivers it, only that one knows. By LMTP it
    has. A host that took our NOTIFY over (`spoken.dsn`) says it itself.
    """
    claimed = result.claimed
    if claimed.sender is None or result.held is not None:
        return None
    dsn = claimed.metadata.get("_dsn")
    asked = dsn.get("notify", _UNSAID) if isinstance(dsn, dict) else _UNSAID
    if result.result == "success":
        if "SUCCESS" not in asked or result.spoken.dsn:
            return None
        return "delivered" if result.spoken.last else "relayed"
    if result.result is not None:
        return "failed" if "FAILURE" in asked else None
    return "delayed" if result.late is not None and "DELAY" in asked else None
