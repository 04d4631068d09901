"""verbs — what hold, release, retry, delay, priority, move, bounce and delete change

Owns: the change of each verb, from its own values.
Guarantees: an invalid value is refused before any query.
Raises: Refused; UnknownTransport and UnknownPartition.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from operate import partition_ids, transports
from operate.errors import Refused
from operate.queue.act import Change
from shared.config.units import format_duration

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from shared.mail.message import Address

_WAITING: Final = ("DELIVER",)
_BOTH: Final = ("HOLD", "DELIVER")
PRIORITIES: Final = range(-9, 10)
LONGEST_WORD: Final = 255  # characters, as long as an id in YAML may be


def hold(quarantine: str | None, reason: str | None) -> Change:
    """Put recipients on hold; workers leave them alone until they are released. `reason` is By's, which checks it."""
    argument = {"quarantine": quarantine} if quarantine else {}
    values = {"quarantine": quarantine, "reason": reason}
    return Change("hold", "queue_hold", _WAITING, "put on hold", sending=True, values=values, argument=argument)


def release() -> Change:
    """Release held recipients: they are tried now."""
    return Change("release", "queue_release", ("HOLD",), "released")


def copy(to: Address | None) -> Change:
    """Release a copy, to another address if one is given, and leave the held recipient where it is."""
    values = {"localpart": to.localpart if to else None, "domain": to.domain if to else None}
    argument = {"to": str(to)} if to else {}
    return Change("copy", "queue_copy", ("HOLD",), "released copies of", values=values, argument=argument, resumes=True)


def retry() -> Change:
    """Try recipients now instead of when they are due."""
    return Change("retry", "queue_due", _WAITING, "made due", values={"at": None}, retests=True)


def delay(wait: timedelta) -> Change:
    """Try recipients so much later than now."""
    at = datetime.now(UTC) + wait
    return Change("delay", "queue_due", _WAITING, "delayed", values={"at": at}, argument={"for": format_duration(wait)})


def priority(to: int) -> Change:
    """Make recipients more or less urgent: -9 to 9."""
    if to not in PRIORITIES:
        raise Refused(f"{to} is not a priority; allowed: -9 to 9")
    return Change(
        "priority", "queue_priority", _BOTH, "changed the priority of", values={"priority": to}, argument={"to": to}
    )


def move(folder: Path, transport: str | None, partition: str | None) -> Change:
    """Give recipients another transport, another partition, or both; `folder` has the configuration that knows them."""
    transports.check_option(folder, [transport] if transport else [])
    partition_ids.check_option(folder, partition)
    wanted = {"transport": transport, "partition": partition}
    if not any(wanted.values()):
        raise Refused(
            "move: a change is missing; allowed: a transport, a partition or both",
            "queue move: give --transport, --partition or both",
        )
    argument = {name: value for name, value in wanted.items() if value is not None}
    return Change("move", "queue_move", _BOTH, "moved", values=wanted, argument=argument)


def bounce() -> Change:
    """Bounce recipients; their senders are notified."""
    return Change("bounce", "queue_end", _BOTH, "bounced", sending=True, values={"status": "BOUNCE"})


def delete() -> Change:
    """Delete recipients; no sender is notified."""
    return Change("delete", "queue_end", _BOTH, "deleted", sending=True, values={"status": "DELETE"})
