"""texts — the readable part of a notification

Owns: the built-in texts, and the values of their placeholders. Pure.
Guarantees: lines end with CR LF. A placeholder is replaced once: its value is not searched for placeholders.
See: shared/config/queued/bounces.py (PLACEHOLDERS); docs/how-to/deliver/bounces.md.
"""

from __future__ import annotations

import re
from email.utils import format_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queued.dsn.report import Manner, Original, RecipientReport

_OPENING: Final = "This is the mail system at host {hostname}.\n\n"
BUILT_IN: Final[Mapping[str, str]] = {
    "failed": _OPENING + "Your message of {arrived} could not be delivered to the recipients below, and will not be\n"
    "tried again. This report is followed by {returned}.\n\n{recipients}",
    "delayed": _OPENING
    + "Your message of {arrived} could not be delivered to the recipients below so far. You need not\n"
    "send it again: it is tried until {until}.\n\n{recipients}",
    "delivered": _OPENING
    + "Your message of {arrived} was delivered to the recipients below. You asked for this report.\n\n"
    "{recipients}",
    "relayed": _OPENING
    + "Your message of {arrived} was relayed for the recipients below, to hosts that may not report\n"
    "whether it was delivered.\n\n{recipients}",
}
_NAMED: Final = re.compile(r"\{(\w+)\}")
_LONGEST: Final = 700  # characters of a line that a peer fills


def text(kind: str, original: Original, reports: Sequence[RecipientReport], manner: Manner, returned: str) -> str:
    """The text of this notification: the operator's, or the built-in one."""
    untils = [each.until for each in reports if each.until is not None]
    values = {
        "hostname": manner.hostname,
        "sender": str(original.sender),
        "recipients": "\n".join(map(_recipient, reports)),
        "returned": returned,
        "arrived": format_datetime(original.arrived),
        "until": format_datetime(max(untils)) if untils else "it is given up",
    }
    template = manner.texts.get(kind) or BUILT_IN[kind]
    filled = _NAMED.sub(lambda found: values.get(found[1], found[0]), template)
    lines = ("".join(c if c.isprintable() else "?" for c in line) for line in filled.split("\n"))
    return "\r\n".join(line.rstrip() for line in lines).rstrip() + "\r\n"


def _recipient(report: RecipientReport) -> str:
    """`<address>: host said: text`."""
    words = " ".join((report.text or "").split())[:_LONGEST]
    named = report.remote and not report.remote.startswith("unix:")  # the path of a socket is not for senders
    host = report.remote if named and report.code is not None else None
    said = f"host {host} said: {words}" if host else words
    return f"<{report.recipient}>: {said}" if said else f"<{report.recipient}>"
