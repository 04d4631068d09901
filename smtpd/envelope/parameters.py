"""parameters — reads the parameters after MAIL FROM:<…> and RCPT TO:<…>

Owns: the list of ESMTP parameters, the meaning of their values, and the reply to a bad one. Pure.
Guarantees: a parameter is read only if its extension was offered. Every value is in its range and printable, so it can
    be used in a header or a log. Keywords and keyword values are read in any case. A client that may not relay cannot
    influence when its message is sent, its priority, or its notifications: it could name any sender.
Raises: only Refused, with the one reply the client gets.
See: RFC 5321 sections 4.1.1.11 (555), 4.1.2; RFC 1870 (SIZE), RFC 6152 (8BITMIME), RFC 3030 (BINARYMIME), RFC 6531
    (SMTPUTF8), RFC 3461 (DSN), RFC 4865 (FUTURERELEASE), RFC 6710 (MT-PRIORITY), RFC 8689 (REQUIRETLS), RFC 4954
    section 5 (AUTH).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from smtpd import replies
from smtpd.envelope import parameter_values as values
from smtpd.envelope.parameter_values import OriginalRecipient
from smtpd.replies import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "NOTHING_OFFERED",
    "NOTHING_OFFERED_TO_STRANGERS",
    "MailParameters",
    "Offered",
    "OriginalRecipient",
    "RcptParameters",
    "Refused",
    "futurerelease",
    "mail_parameters",
    "rcpt_parameters",
    "split",
]

type Body = Literal["7BIT", "8BITMIME", "BINARYMIME"]
type Ret = Literal["FULL", "HDRS"]


@dataclass(frozen=True, slots=True)
class Offered:
    """The offer in the reply to EHLO on this connection in its state (TLS, authentication), with the limits."""

    size: int | None = None  # largest message in octets; 0: offered without a limit; None: SIZE not offered
    eightbitmime: bool = False
    binarymime: bool = False
    smtputf8: bool = False
    dsn: bool = False
    hold: timedelta | None = None  # how far ahead FUTURERELEASE reaches; None: not offered
    priority: bool = False  # MT-PRIORITY
    relay: bool = True  # whether this client may relay; a stranger gets no hold, notifications or urgency
    requiretls: bool = False
    tls: bool = False  # whether the connection is under TLS: says why REQUIRETLS is refused
    auth: bool = False


@dataclass(frozen=True, slots=True)
class MailParameters:
    """The parameters of MAIL; None where it gave none."""

    size: int | None = None  # octets, as declared
    body: Body = "7BIT"  # the default of RFC 6152 section 3
    smtputf8: bool = False
    ret: Ret | None = None
    envid: str | None = None  # decoded
    requiretls: bool = False
    hold_until: datetime | None = None  # UTC
    hold_request: str | None = None  # `for;60` or `until;2026-…`: Future-Release-Request of RFC 4865 section 5.1.2
    priority: int | None = None  # -9 to 9, as it was granted
    auth: str | None = None  # decoded; `<>` for unknown


@dataclass(frozen=True, slots=True)
class RcptParameters:
    """The parameters of RCPT; None where it gave none."""

    notify: frozenset[str] | None = None  # of NEVER, SUCCESS, FAILURE, DELAY
    orcpt: OriginalRecipient | None = None


NOTHING_OFFERED: Final = Offered()  # after HELO
NOTHING_OFFERED_TO_STRANGERS: Final = Offered(relay=False)
_MAIL_PLAIN: Final = MailParameters()
_RCPT_PLAIN: Final = RcptParameters()
_RCPT_OF_STRANGER: Final = RcptParameters(notify=frozenset({"NEVER"}))
_OF_RCPT: Final = frozenset({"NOTIFY", "ORCPT"})
_RETS: Final[Mapping[str, Ret]] = {"FULL": "FULL", "HDRS": "HDRS"}


def split(text: str) -> list[str]:
    """The text after the path, split at blanks only: another control character is not a separator."""
    return [word for word in text.split(" ") if word]


def mail_parameters(words: Sequence[str], offered: Offered, now: datetime) -> MailParameters:
    """The parameters of MAIL, split at blanks; `now` is what HOLDFOR and HOLDUNTIL count from. Raises Refused."""
    if not words:
        return _MAIL_PLAIN
    given = values.read(words, _of_mail(offered))
    requiretls = values.flag(given, "REQUIRETLS")
    if requiretls and not offered.tls:
        raise Refused(replies.R530_REQUIRETLS)
    hold_until, hold_request = values.hold(given, offered.hold or timedelta(), now)
    if hold_until is not None and not offered.relay:
        raise Refused(replies.R550_HOLD)
    ret, envid = values.word(given, "RET", _RETS), values.envid(given)
    return MailParameters(
        size=values.size(given, offered.size or 0),
        body=values.word(given, "BODY", _bodies(offered)) or "7BIT",
        smtputf8=values.flag(given, "SMTPUTF8"),
        ret=ret if offered.relay else None,
        envid=envid if offered.relay else None,
        requiretls=requiretls,
        hold_until=hold_until,
        hold_request=hold_request,
        priority=values.priority(given, urgent=offered.relay),
        auth=values.auth(given),
    )


def rcpt_parameters(words: Sequence[str], offered: Offered, *, smtputf8: bool = False) -> RcptParameters:
    """The parameters of RCPT, split at blanks; `smtputf8` is whether MAIL asked for it. Raises Refused.

    A stranger's parameters are read and dropped: the sender that it names gets no notifications.
    """
    if not words:
        return _RCPT_PLAIN if offered.relay else _RCPT_OF_STRANGER
    given = values.read(words, _OF_RCPT if offered.dsn else frozenset())
    asked = RcptParameters(notify=values.notify(given), orcpt=values.orcpt(given, smtputf8=smtputf8))
    return asked if offered.relay else _RCPT_OF_STRANGER


def futurerelease(hold: timedelta, now: datetime) -> str:
    """The line of the EHLO reply that offers to hold mail that long (RFC 4865 section 3)."""
    return f"FUTURERELEASE {int(hold.total_seconds())} {now.astimezone(UTC) + hold:%Y-%m-%dT%H:%M:%SZ}"


@cache
def _of_mail(offered: Offered) -> frozenset[str]:
    """The keywords MAIL may carry. Few different offers are made, so few answers are kept."""
    extensions = {
        "SIZE": offered.size is not None,
        "BODY": offered.eightbitmime or offered.binarymime,
        "SMTPUTF8": offered.smtputf8,
        "RET": offered.dsn,
        "ENVID": offered.dsn,
        "HOLDFOR": offered.hold is not None,
        "HOLDUNTIL": offered.hold is not None,
        "MT-PRIORITY": offered.priority,
        "REQUIRETLS": offered.requiretls or not offered.tls,  # without TLS there is a better answer than "unknown"
        "AUTH": offered.auth,
    }
    return frozenset(keyword for keyword, known in extensions.items() if known)


@cache
def _bodies(offered: Offered) -> Mapping[str, Body]:
    bodies: dict[str, Body] = {"7BIT": "7BIT"}
    if offered.eightbitmime:
        bodies["8BITMIME"] = "8BITMIME"
    if offered.binarymime:
        bodies["BINARYMIME"] = "BINARYMIME"
    return bodies
