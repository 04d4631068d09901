"""verbs — `pillarbox queue hold|release|retry|delay|priority|move|bounce|delete|undo`

Owns: the options of each verb.
Guarantees: an invalid value is refused before any query.
See: operate/queue/verbs.py for what each changes.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from operate.queue import verbs
from scripts.options import address, duration, finish, priority, row_number
from scripts.queue.act import act, add_acting, add_consent
from scripts.queue.query import run
from scripts.queue.undo import undo
from shared.errors import PillarboxError
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from operate.queue.act import Change


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verbs that act."""
    verb = _verb(under, "hold", "put recipients on hold", _hold)
    verb.add_argument("--quarantine", type=_word, metavar="ID", help="in this quarantine")

    verb = _verb(under, "release", "release held recipients: they are tried now", _release)
    verb.add_argument("--copy", action="store_true", help="release a copy and leave the held one where it is")
    verb.add_argument("--to", type=address, metavar="ADDRESS", help="with --copy: to this address instead")

    _verb(under, "retry", "try recipients now instead of when they are due", lambda _: verbs.retry())

    verb = _verb(under, "delay", "try recipients later", lambda options: verbs.delay(options.wait))
    verb.add_argument("--for", dest="wait", type=duration, required=True, metavar="DURATION", help="30m, 2h, 1d")

    verb = _verb(under, "priority", "make recipients more or less urgent", lambda options: verbs.priority(options.to))
    verb.add_argument("--to", type=priority, required=True, metavar="N", help="-9 to 9; above 0 urgent, below 0 bulk")

    verb = _verb(under, "move", "give recipients another transport or partition", _move)
    verb.add_argument("--transport", type=_word, metavar="ID", help="a transport of queued.yaml")
    verb.add_argument("--partition", type=_word, metavar="ID", help="a partition id")

    _verb(under, "bounce", "bounce recipients and notify their senders", lambda _: verbs.bounce())
    _verb(under, "delete", "delete recipients without a notification", lambda _: verbs.delete())

    verb = under.add_parser("undo", help="undo an earlier command as far as possible")
    verb.add_argument("id", type=row_number, metavar="AUDIT", help="the number of its audit row")
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
    return verbs.hold(options.quarantine, options.reason)


def _release(options: argparse.Namespace) -> Change:
    if options.copy:
        return verbs.copy(options.to)
    if options.to is not None:
        raise PillarboxError("queue release: --to requires --copy: a release cannot change the recipient itself")
    return verbs.release()


def _move(options: argparse.Namespace) -> Change:
    return verbs.move(options.config, options.transport, options.partition)


def _undo(options: argparse.Namespace) -> int:
    return run(options, lambda connection: undo(connection, options))


def _word(text: str) -> str:
    if 0 < len(text) <= verbs.LONGEST_WORD and text.isprintable():
        return text
    raise argparse.ArgumentTypeError(f"{show(text)} is not an id; allowed: 1 to 255 printable characters")
