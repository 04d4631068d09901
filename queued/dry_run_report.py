"""dry_run_report — the findings of a dry run, for people and for programs

Owns: the block of lines and the JSON document of one recipient. Pure.
Guarantees: a block is for people, and may change; the keys of a document do not. Text from mail is escaped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from queued.routing.source import allowance
from shared.how_many import how_many
from shared.observe.events import quote

if TYPE_CHECKING:
    from datetime import date, datetime

    from queued.tls.demanded import TlsWanted
    from queued.values import Claimed
    from shared.config.queued.source import Source
    from shared.config.queued.transport import Transport


def block(number: int, found: DryRun) -> str:
    """A few lines; the first names the recipient."""
    c = found.claimed
    size = how_many(c.size, "octet")
    who = f"{number}  {quote(c.recipient)} from {quote(c.sender or '<>')}, {size}, message {c.message_id}"
    of = f" of {found.tries}" if found.tries else ""
    lines = [
        ("due", f"{_time(found.due)}, try {c.retry_count}{of}"),
        ("transport", quote(found.transport)),
        ("route", found.route),
        ("hosts", ", ".join(found.hosts)),
        ("source", ", ".join(found.sources) or found.nosource or ""),
        ("tls", ", ".join(found.tls)),
        ("pacing", found.pacing),
        ("signing", ", ".join(found.signing) or f"none: {found.unsigned}"),
        ("seal", found.seal or (f"none: {found.unsealed}" if found.unsealed else "")),
        ("refused", found.refused or ""),
        ("deferred", _deferred(found)),
    ]
    return "\n".join([who, *(f"   {name:<10} {text}" for name, text in lines if text)]) + "\n\n"


def document(found: DryRun) -> str:
    """One line of JSON."""
    c = found.claimed
    said = {
        "recipient_id": c.id,
        "message_id": str(c.message_id),
        "recipient": str(c.recipient),
        "sender": str(c.sender or ""),
        "partition": c.partid,
        "priority": c.priority,
        "size": c.size,
        "due": found.due.isoformat(),
        "try": c.retry_count,
        "tries": found.tries or None,
        "transport": found.transport,
        "route": found.route or None,
        "hosts": list(found.hosts),
        "sources": list(found.sources),
        "nosource": found.nosource,
        "tls": list(found.tls),
        "pacing": found.pacing or None,
        "signing": list(found.signing),
        "unsigned": found.unsigned,
        "seal": found.seal,
        "unsealed": found.unsealed,
        "refused": found.refused,
        "deferred_until": found.deferred and found.deferred.isoformat(),
        "expires": found.expires and found.expires.isoformat(),
    }
    return json.dumps(said, ensure_ascii=False) + "\n"


def tls(wanted: TlsWanted) -> str:
    """The TLS requirements for one host."""
    if wanted.refused:
        return f"no mail to this host: {wanted.refused}"
    how = {"never": "clear text", "offered": "TLS where offered", "must": "TLS or nothing"}[wanted.speak]
    names = " or ".join(wanted.names)
    proof = {"none": "", "certificate": f", certificate for {names}", "dane": ", certificate by TLSA"}[wanted.proof]
    return f"{how}{proof}" + (f" ({wanted.why})" if wanted.why else "")


def source(given: Source, transport: Transport, day: date) -> str:
    """One address that mail may leave from, with what decides how often that is."""
    name = given.hostname or transport.hostname
    most = allowance(given, day)
    return (
        f"{given.address}{f' as {name}' if name else ''}"
        f"{f' (weight {given.weight})' if len(transport.sources) > 1 else ''}"
        f"{f', at most {how_many(most, "message")} today (warm-up)' if most is not None else ''}"
    )


def _deferred(found: DryRun) -> str:
    """The consequence if this try is deferred."""
    if found.expires is None:
        return ""
    if found.deferred is None:
        return "would be given up, because this is the last try"
    return f"would be tried again at {_time(found.deferred)}; given up at {_time(found.expires)}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}".strip()


class DryRun(NamedTuple):
    """The finding for one recipient; `refused` is why it would not come to a conversation."""

    claimed: Claimed
    due: datetime
    transport: str
    route: str = ""
    hosts: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    nosource: str | None = None
    tls: tuple[str, ...] = ()
    refused: str | None = None
    pacing: str = ""
    signing: tuple[str, ...] = ()
    unsigned: str | None = None
    seal: str | None = None
    unsealed: str | None = None
    tries: int = 0
    deferred: datetime | None = None  # when it would be tried again if this try were deferred now
    expires: datetime | None = None
