"""schedule_mail — the message of a schedule, from its addresses, its content and its time

Owns: checking addresses and times, and the fields that are removed from a recurring message.
Guarantees: pillarbox.enqueue accepts the result.
Raises: Refused, one line that names the option or field, the value and the allowed values.
See: RFC 5322 sections 3.6.1 (Date) and 3.6.4 (Message-ID); sql/schema/16_schedule.sql, schedule_send, which
    gives every occurrence its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from operate.errors import Refused
from shared import cron
from shared.mail.address import AddressRefused, parse
from shared.mail.submitted import as_submitted
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import tzinfo

# A field and its folded lines, in a header section whose lines end with CR LF.
_OF_ONE_OCCURRENCE: Final = re.compile(
    rb"^(?:date|message-id)[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*", re.IGNORECASE | re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Mail:
    """One message for its recipients; `sender` "" is the null sender."""

    sender: str
    recipients: tuple[str, ...]
    content: bytes

    @property
    def smtputf8(self) -> bool:
        """Whether a peer must know SMTPUTF8 (RFC 6531): for an address or for the header."""
        addresses = (self.sender, *self.recipients)
        return not (all(address.isascii() for address in addresses) and _header(self.content)[0].isascii())


def check_addresses(sender: str, recipients: Sequence[str]) -> None:
    """Refuse addresses that are none; the sender may be the null sender."""
    for option, address in (("from", sender), *(("to", each) for each in recipients)):
        if option == "from" and not address:
            continue
        try:
            parse(address)
        except AddressRefused as error:
            raise _refused(option, f"{show(address)}: {error}; allowed: local-part@domain") from None


def checked(sender: str, recipients: Sequence[str], content: bytes, source: str = "") -> Mail:
    """A message for these addresses; `source` is where its content comes from, for the command line."""
    check_addresses(sender, recipients)
    if not content.strip():
        why = "is empty; allowed: a message with its header"
        raise Refused(f"message: {why}", f"--file: {show(source)} {why}")
    if b"\0" in content:
        why = "holds a NUL; allowed: a message by RFC 5322"
        raise Refused(f"message: {why}", f"--file: {show(source)} {why}")
    return Mail(sender, tuple(recipients), as_submitted(content))


def recurring(content: bytes) -> bytes:
    """The message without Date and Message-ID: each occurrence gets its own, or receivers would drop all but one."""
    header, rest = _header(content)
    return _OF_ONE_OCCURRENCE.sub(b"", header) + rest


def instant(text: str, timezone: str, now: datetime) -> datetime:
    """The time that `--at` names, in UTC; without an offset it is meant in the time zone."""
    allowed = "a time to come such as 2026-12-24T18:00 or 2026-12-24T18:00+01:00"
    place = zone(timezone)
    try:
        named = datetime.fromisoformat(text)
        at = (named if named.tzinfo else named.replace(tzinfo=place)).astimezone(UTC)
    except (ValueError, OverflowError):  # not a time; before the year 1 or after 9999 in UTC
        raise _refused("at", f"{show(text)} is not a time; allowed: {allowed}") from None
    # There and back again is another hour where the clock was put forward over it.
    if named.tzinfo is None and at.astimezone(place).replace(tzinfo=None) != named:
        raise _refused("at", f"{show(text)} does not exist in {timezone}: the clock is put forward over it")
    if at <= now:
        raise _refused("at", f"{show(text)} has passed; allowed: {allowed}")
    return at


def zone(name: str) -> tzinfo:
    """The time zone that `--timezone` names."""
    try:
        return cron.zone(name)
    except cron.CronRefused as error:
        raise _refused("timezone", f"{error}") from None


def first_occurrence(every: str, timezone: str, now: datetime) -> datetime:
    """When `--every` comes first."""
    zone(timezone)
    try:
        return cron.following(every, timezone, now)
    except cron.CronRefused as error:
        raise _refused("every", f"{error}") from None


def _refused(name: str, why: str) -> Refused:
    return Refused(f"{name}: {why}", f"--{name}: {why}")


def _header(content: bytes) -> tuple[bytes, bytes]:
    """The header section, and what follows it from the empty line on."""
    if content.startswith(b"\r\n"):
        return b"", content
    end = content.find(b"\r\n\r\n")
    return (content, b"") if end < 0 else (content[: end + 2], content[end + 2 :])
