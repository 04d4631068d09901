"""parameter_values — reads the value of each ESMTP parameter

Owns: the grammar of every value and the reply to a bad one. Pure.
Guarantees: returned values are in their range and printable. Keywords and keyword values are read in any case.
Raises: only Refused.
See: RFC 5321 section 4.1.2 (esmtp-param), RFC 3461 section 4, RFC 4865 section 4.2, RFC 6710 section 4.1.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from shared.mail import xtext
from shared.mail.dsn import ENVID_LIMIT, NOTIFY
from smtpd import replies

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
from smtpd.replies import Refused

type Given = Mapping[str, str | None]  # value by keyword; None for a keyword without value

_KEYWORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")  # RFC 5321 section 4.1.2, esmtp-keyword
_VALUE: Final = re.compile(r"[!-<>-~\u00a0-\U0010ffff]+")  # RFC 5321 section 4.1.2, RFC 6531 section 3.3
_SIZE: Final = re.compile(r"[0-9]{1,20}")  # RFC 1870 section 4
_HOLDFOR: Final = re.compile(r"[1-9][0-9]{0,8}")  # RFC 4865 section 3
_PRIORITY: Final = re.compile(r"-?[1-9]|0")  # RFC 6710 section 7
# RFC 3339 section 5.6. Sixty seconds are a leap second.
_DATE_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}):(?:([0-5][0-9])|60)(?:\.[0-9]{1,9})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})",
    re.IGNORECASE,
)
_ATOM: Final = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+")
_ORCPT_LIMIT: Final = 500  # characters as written, RFC 3461 section 4.2
_SHOWN: Final = 40  # characters of an unknown keyword that a reply repeats


class OriginalRecipient(NamedTuple):
    """ORCPT, decoded: the type of the address in lower case, and the address (RFC 3461 section 4.2)."""

    type: str
    address: str


def read(words: Sequence[str], known: Container[str]) -> Given:
    """The parameters as written, each once and each of the known ones; values hold no octet that none may."""
    values: dict[str, str | None] = {}
    for written in words:
        keyword, equals, value = written.partition("=")
        if not _KEYWORD.fullmatch(keyword):
            raise Refused(replies.R501_PARAMETER_SYNTAX)
        keyword = keyword.upper()
        if keyword not in known:
            raise Refused(replies.R555_PARAMETER_UNKNOWN.format(keyword=keyword[:_SHOWN]))
        if equals and not _VALUE.fullmatch(value):
            _refuse(keyword, "is empty or holds what no value may")
        if keyword in values:
            raise Refused(replies.R501_PARAMETER_TWICE.format(keyword=keyword))
        values[keyword] = value if equals else None
    return values


def _refuse(keyword: str, reason: str) -> NoReturn:
    raise Refused(replies.R501_PARAMETER_VALUE.format(keyword=keyword, reason=reason))


def flag(given: Given, keyword: str) -> bool:
    """A keyword that takes no value (RFC 6531 section 3.4, RFC 8689 section 2)."""
    if given.get(keyword) is not None:
        _refuse(keyword, "it takes none")
    return keyword in given


def _value(given: Given, keyword: str) -> str | None:
    """The value of a keyword that needs one; None if the keyword is not there."""
    value = given.get(keyword)
    if value is None and keyword in given:
        _refuse(keyword, "it is missing")
    return value


def word[Word: str](given: Given, keyword: str, words: Mapping[str, Word]) -> Word | None:
    """A value that is one of a few words."""
    value = _value(given, keyword)
    if value is None:
        return None
    found = words.get(value.upper())
    if found is None or not value.isascii():
        _refuse(keyword, f"allowed: {', '.join(words)}")
    return found


def size(given: Given, limit: int) -> int | None:
    """Octets as declared; more than `limit`, if that is not 0, is refused at once (RFC 1870 section 6.1)."""
    value = _value(given, "SIZE")
    if value is None:
        return None
    if not _SIZE.fullmatch(value):
        _refuse("SIZE", "allowed: 1 to 20 digits")
    if 0 < limit < int(value):
        raise Refused(replies.R552_TOO_BIG.format(limit=limit))
    return int(value)


def hold(given: Given, limit: timedelta, now: datetime) -> tuple[datetime | None, str | None]:
    """When the message is to be released, and the request as it was made (RFC 4865 section 4.2)."""
    seconds, moment = _value(given, "HOLDFOR"), _value(given, "HOLDUNTIL")
    if seconds is not None and moment is not None:
        raise Refused(replies.R501_HOLD_TWICE)
    if seconds is not None:
        if not _HOLDFOR.fullmatch(seconds):
            _refuse("HOLDFOR", "allowed: seconds, 1 to 999999999")
        due, keyword, request = now + timedelta(seconds=int(seconds)), "HOLDFOR", f"for;{seconds}"
    elif moment is not None:
        due, keyword, request = _moment(moment), "HOLDUNTIL", f"until;{moment}"
        if due <= now:
            _refuse("HOLDUNTIL", "it has passed")
    else:
        return None, None
    if due > now + limit:
        _refuse(keyword, f"more than {int(limit.total_seconds())} seconds ahead")
    return due, request


def _moment(value: str) -> datetime:
    found = _DATE_TIME.fullmatch(value)
    if found:
        try:
            moment = datetime.fromisoformat(f"{found[1]}T{found[2]}:{found[3] or '59'}{found[4].upper()}").astimezone(
                UTC
            )
        except (ValueError, OverflowError):  # 30 February; before the year 1 or after 9999 in UTC
            pass
        else:
            return moment
    _refuse("HOLDUNTIL", "allowed: a date and time such as 2030-01-31T12:00:00Z")


def priority(given: Given, *, urgent: bool) -> int | None:
    """MT-PRIORITY, -9 to 9; a client that may not ask for urgency gets 0 instead (RFC 6710 section 4.1)."""
    value = _value(given, "MT-PRIORITY")
    if value is None:
        return None
    if not _PRIORITY.fullmatch(value):
        _refuse("MT-PRIORITY", "allowed: -9 to 9")
    return int(value) if urgent else min(int(value), 0)


def envid(given: Given) -> str | None:
    """The envelope identifier, decoded (RFC 3461 section 4.4)."""
    return _decoded(given, "ENVID", ENVID_LIMIT)


def _decoded(given: Given, keyword: str, limit: int) -> str | None:
    value = _value(given, keyword)
    if value is None:
        return None
    if len(value) > limit:
        _refuse(keyword, f"longer than {limit} characters")
    try:
        return xtext.decode(value)
    except ValueError as error:
        _refuse(keyword, str(error))


def auth(given: Given) -> str | None:
    """`<>` or the address of the first submitter, as xtext (RFC 4954 section 5)."""
    return "<>" if given.get("AUTH") == "<>" else _decoded(given, "AUTH", _ORCPT_LIMIT)


def notify(given: Given) -> frozenset[str] | None:
    """When the sender wants notifications about this recipient (RFC 3461 section 4.1)."""
    value = _value(given, "NOTIFY")
    if value is None:
        return None
    words = frozenset(value.upper().split(",")) - {""}  # empty elements mean nothing (RFC 822's rule 1#element)
    if not value.isascii() or (words != {"NEVER"} and not (words and words <= NOTIFY)):
        _refuse("NOTIFY", "allowed: NEVER, or a list of SUCCESS, FAILURE, DELAY")
    return words


def orcpt(given: Given, *, smtputf8: bool) -> OriginalRecipient | None:
    """The address the message was first sent to, decoded (RFC 3461 section 4.2, RFC 6533 section 3)."""
    value = _value(given, "ORCPT")
    if value is None:
        return None
    kind, semicolon, address = value.partition(";")
    if len(value) > _ORCPT_LIMIT:
        _refuse("ORCPT", f"longer than {_ORCPT_LIMIT} characters")
    if not semicolon or not address or not _ATOM.fullmatch(kind):
        _refuse("ORCPT", "allowed: type;address")
    kind = kind.lower()
    try:
        plain = xtext.decode_address(address, smtputf8=smtputf8) if kind == "utf-8" else xtext.decode(address)
    except ValueError as error:
        _refuse("ORCPT", str(error))
    return OriginalRecipient(kind, plain)
