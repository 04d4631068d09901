"""bounces — notifications to senders, in queued.yaml

Owns: the models of the section `bounces`.
Guarantees: a text has only known placeholders; defaults are Postfix's wherever Postfix has the same limit.
See: https://www.postfix.org/postconf.5.html, bounce(5); RFC 3461; RFC 3464; docs/how-to/deliver/bounces.md
"""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator

from shared.config.fields import Duration, HostName, Id, Section, Size, Text, matching, section, setting, whole
from shared.config.queued.routing import Truth
from shared.mail import address
from shared.masking import show

#: The placeholders of a text, each in braces.
PLACEHOLDERS: Final = ("hostname", "sender", "recipients", "returned", "arrived", "until")
_NAMED: Final = re.compile(r"\{([^{}\n]*)\}")


def _mailbox(value: Any) -> Any:
    try:
        address.parse(value)
    except address.AddressRefused as error:
        raise ValueError(f"{show(value)} is not an address: {error}; allowed: local-part@domain") from None
    return value


def _template(value: str) -> str:
    for name in _NAMED.findall(value):
        if name not in PLACEHOLDERS:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ValueError(f"{{{name}}} means nothing here; allowed: {allowed}")
    return value


Mailbox = Annotated[Text, AfterValidator(_mailbox)]
Template = Annotated[Text, AfterValidator(_template)]
DisplayName = Annotated[str, matching(r"[ !#-\[\]-~]{1,100}", "1 to 100 printable ASCII characters, no quotes")]


class Texts(Section):
    """Texts for the readable part of a notification, instead of the built-in English."""

    failed: Template | None = setting(None, "For recipients that failed.", unit="text", absent="built-in")
    delayed: Template | None = setting(None, "For recipients that are late.", unit="text", absent="built-in")
    delivered: Template | None = setting(None, "For recipients delivered by LMTP.", unit="text", absent="built-in")
    relayed: Template | None = setting(
        None, "For recipients relayed by SMTP to a host that does not offer DSN.", unit="text", absent="built-in"
    )


class BounceRate(Section):
    """Limits on the notifications of an hour; those beyond wait for the next hour."""

    persender: Annotated[int, whole(1, 1_000_000)] | None = setting(
        100, "The most to one sender, counted over all workers.", unit="notifications an hour"
    )
    overall: Annotated[int, whole(1, 100_000_000)] | None = setting(
        None, "The most to all senders, counted over all workers.", unit="notifications an hour", absent="no limit"
    )


class Bounces(Section):
    """Notifications to senders about their recipients (RFC 3464)."""

    enabled: Truth = setting(True, "Whether notifications are sent; if false, pending ones are dropped.", unit="truth")
    transport: Id = setting("default", "The transport they are sent by.", unit="id of a transport")
    hostname: HostName | None = setting(
        None,
        "The name we report under: Reporting-MTA, and the domain of `address` (Postfix myhostname).",
        unit="host name",
        absent="this host's fully qualified name, or the literal of its address",
    )
    name: DisplayName = setting(
        "Mail Delivery System", "The display name of their sender (Postfix mail_name).", unit="text"
    )
    address: Mailbox | None = setting(
        None,
        "The address in their From field (Postfix double_bounce_sender); their envelope sender is empty.",
        unit="address",
        absent="MAILER-DAEMON at `hostname`",
    )
    postmaster: Mailbox | None = setting(
        None,
        "Who gets a copy, with the header only, of each failure notification (Postfix bounce_notice_recipient).",
        unit="address",
        absent="no copies",
    )
    size: Size = setting(
        50_000,
        "The largest message that is returned completely; of larger ones, and with RET=HDRS, only the header is "
        "returned (Postfix bounce_size_limit).",
        unit="size in bytes",
    )
    gather: Duration = setting(
        "5s",
        "How long to wait for further recipients of a message, so that they share one notification.",
        unit="duration",
    )
    rate: BounceRate = section(BounceRate, "Limits on notifications per hour; further ones wait.")
    texts: Texts = section(
        Texts, "The texts of their readable part, with placeholders such as {hostname}, {sender} and {recipients}."
    )
