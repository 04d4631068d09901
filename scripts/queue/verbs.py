"""verbs — `pillarbox queue hold|release|retry|delay|priority|move|bounce|delete|undo`

Owns: the change of each verb, and its options.
Guarantees: an invalid value is refused before any query.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from operate import partition_ids, transports
from scripts.options import address, duration, finish
from scripts.queue.act import Change, act, add_acting, add_consent
from scripts.queue.query import run
from scripts.queue.undo import undo
from shared.config.units import format_duration
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.mail.message import Address

_WAITING: Final = ("DELIVER",)
_BOTH: Final = ("HOLD", "DELIVER")
_PRIORITIES: Final = range(-9, 10)


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that act."""
    verb = _verb(under, "hold", "put recipients on hold", _hold)
    verb.add_argument("--quarantine", type=_word, metavar="ID", help="in this quarantine")

    verb = _verb(under, "release", "release held recipients: they are tried now", _release)
    verb.add_argument("--copy", action="store_true", help="release a copy and leave the held one where it is")
    verb.add_argument("--to", type=address, metavar="ADDRESS", help="with --copy: to this address instead")

    _verb(under, "retry", "try recipients now instead of when they are due", _retry)

    verb = _verb(under, "delay", "try recipients later", _delay)
    verb.add_argument("--for", dest="wait", type=duration, required=True, metavar="DURATION", help="30m, 2h, 1d")

    verb = _verb(under, "priority", "make recipients more or less urgent", _priority)
    verb.add_argument("--to", type=_level, required=True, metavar="N", help="-9 to 9; above 0 urgent, below 0 bulk")

    verb = _verb(under, "move", "give recipients another transport or partition", _move)
    verb.add_argument("--transport", type=_word, metavar="ID", help="a transport of queued.yaml")
    verb.add_argument("--partition", type=_word, metavar="ID", help="a partition id")

    _verb(under, "bounce", "bounce recipients and notify their senders", _bounce)
    _verb(under, "delete", "delete recipients without a notification", _delete)

    verb = under.add_parser("undo", help="undo an earlier command as far as possible")
    verb.add_argument("id", type=int, metavar="AUDIT", help="the number of its audit row")
    add_consent(verb)
    finish(verb, _undo, acting=True)


def _verb(
    under: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    help_: str,
    made: Callable[[argparse.Namespace], Change],
) -> argparse.ArgumentParser:
    verb = under.add_parser(name, help=help_)
    add_acting(verb)

    def func(options: argparse.Namespace) -> int:
        change = made(options)
        return run(options, lambda connection: act(connection, options, change))

    finish(verb, func, acting=True)
    return verb


def _hold(options: argparse.Namespace) -> Change:
    argument = {"quarantine": options.quarantine} if options.quarantine else {}
    values = {"quarantine": options.quarantine, "reason": options.reason}
    return Change("hold", "queue_hold", _WAITING, "put on hold", sending=True, values=values, argument=argument)


def _release(options: argparse.Namespace) -> Change:
    if not options.copy:
        if options.to is not None:
            raise PillarboxError("queue release: --to requires --copy: a release cannot change the recipient itself")
        return Change("release", "queue_release", ("HOLD",), "released")
    to: Address | None = options.to
    values = {"localpart": to.localpart if to else None, "domain": to.domain if to else None}
    argument = {"to": str(to)} if to else {}
    return Change("copy", "queue_copy", ("HOLD",), "released copies of", values=values, argument=argument, resumes=True)


def _retry(_: argparse.Namespace) -> Change:
    return Change("retry", "queue_due", _WAITING, "made due", values={"at": None})


def _delay(options: argparse.Namespace) -> Change:
    at = datetime.now(UTC) + options.wait
    return Change(
        "delay", "queue_due", _WAITING, "delayed", values={"at": at}, argument={"for": format_duration(options.wait)}
    )


def _priority(options: argparse.Namespace) -> Change:
    return Change(
        "priority",
        "queue_priority",
        _BOTH,
        "changed the priority of",
        values={"priority": options.to},
        argument={"to": options.to},
    )


def _move(options: argparse.Namespace) -> Change:
    transports.check_option(options.config, [options.transport] if options.transport else [])
    partition_ids.check_option(options.config, options.partition)
    wanted = {"transport": options.transport, "partition": options.partition}
    if not any(wanted.values()):
        raise PillarboxError("queue move: give --transport, --partition or both")
    argument = {name: value for name, value in wanted.items() if value is not None}
    return Change("move", "queue_move", _BOTH, "moved", values=wanted, argument=argument)


def _bounce(_: argparse.Namespace) -> Change:
    return Change("bounce", "queue_end", _BOTH, "bounced", sending=True, values={"status": "BOUNCE"})


def _delete(_: argparse.Namespace) -> Change:
    return Change("delete", "queue_end", _BOTH, "deleted", sending=True, values={"status": "DELETE"})


def _undo(options: argparse.Namespace) -> int:
    return run(options, lambda connection: undo(connection, options))


def _level(text: str) -> int:
    if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() and int(text) in _PRIORITIES:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a priority; allowed: -9 to 9")


def _word(text: str) -> str:
    if 0 < len(text) <= 255 and text.isprintable():  # noqa: PLR2004 - as long as an id in YAML may be
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not an id; allowed: 1 to 255 printable characters")
