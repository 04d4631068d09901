"""requested — what submitters asked for, read back from queue.metadata

Owns: reading the reserved keys `_dsn`, what they want to be told, and `_requiretls`. Pure.
Guarantees: whatever stands in the column, no exception: what is not as shared.mail.message writes it counts as not
    said. See: shared/mail/message.py, which writes it; RFC 3461 sections 4.1 to 4.4; RFC 8689; sql/README.md, "Reserved
    metadata".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from shared.mail.message import MessageDsn, RecipientDsn

if TYPE_CHECKING:
    from collections.abc import Mapping

_RET: Final = ("FULL", "HDRS")
_NOTIFY: Final = frozenset({"NEVER", "SUCCESS", "FAILURE", "DELAY"})
_PAIR: Final = 2  # type and address


def of_message(metadata: Mapping[str, Any] | None) -> MessageDsn:
    """RET and ENVID (RFC 3461 sections 4.3, 4.4)."""
    asked = _asked(metadata)
    ret, envid = asked.get("ret"), asked.get("envid")
    return MessageDsn(ret if ret in _RET else None, envid if _is_line(envid) else None)


def of_recipient(metadata: Mapping[str, Any] | None) -> RecipientDsn | None:
    """NOTIFY and ORCPT (RFC 3461 sections 4.1, 4.2); None when neither was said."""
    asked = _asked(metadata)
    notify, orcpt = asked.get("notify"), asked.get("orcpt")
    words = frozenset(word for word in notify if word in _NOTIFY) if isinstance(notify, list) else None
    pair = orcpt if isinstance(orcpt, list) and len(orcpt) == _PAIR and all(map(_is_line, orcpt)) else None
    address = (str(pair[0]), str(pair[1])) if pair else None
    return RecipientDsn(words or None, address) if words or address else None


def requiretls(metadata: Mapping[str, Any] | None) -> bool:
    """REQUIRETLS (RFC 8689 section 2)."""
    return (metadata or {}).get("_requiretls") is True


def _asked(metadata: Mapping[str, Any] | None) -> Mapping[str, Any]:
    asked = (metadata or {}).get("_dsn")
    return asked if isinstance(asked, dict) else {}


def _is_line(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()
