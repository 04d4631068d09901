"""cli — the command `pillarbox`

Owns: the list of verbs, and turning an error that an operator can correct into one line and an exit status.
Guarantees: no stack trace for bad input, nor in a locale without UTF-8; Ctrl-C is status 130 without one.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import sys
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final

from scripts.options import AS
from shared.command_line import OF_OUTPUT, Parser, status_of_refusal
from shared.errors import PillarboxError
from shared.masking import show
from shared.version import version

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

#: Each verb and the module below scripts whose `add_parser` adds it; imported only when the command line needs it.
VERBS: Final = {
    "demo": "demo.command",
    "init": "init.command",
    "up": "commands.up",
    "status": "status.command",
    "migrate": "commands.migrate",
    "database": "commands.database",
    "user": "access.user",
    "principal": "access.principal",
    "key": "access.key",
    "web": "access.web",
    "suppress": "commands.suppress",
    "sendmail": "sendmail.command",
    "sink": "sink.command",
    "queue": "queue.command",
    "quarantine": "quarantine.command",
    "recover": "recover.command",
    "retention": "retention.command",
    "deadletters": "deadletters.command",
    "erase": "commands.erase",
    "doctor": "doctor.command",
    "schedule": "commands.schedule",
    "suspend": "commands.suspend",
    "webhooks": "commands.webhooks",
    "partitions": "partitions.command",
    "volumes": "commands.volumes",
    "accounts": "accounts.command",
    "collect": "commands.collect",
    "policy": "policy.command",
    "config": "commands.config",
    "relay": "commands.relay",
    "dkim": "commands.dkim",
    "rules": "commands.rules",
    "analytics": "analytics.command",
    "psql": "commands.psql",
    "completion": "commands.completion",
}
#: How Python has octets of a word that are not UTF-8 (PEP 383); PostgreSQL takes none.
_NOT_UTF8: Final = re.compile("[\ud800-\udfff]")
_BEFORE_A_VERB: Final = ("-h", "--help", "--version")
_INTERRUPTED, _UNREAD = 130, 141  # as a shell has it: 128 and the number of the signal
_UNWRITTEN = 74  # EX_IOERR of sysexits.h
_NOWHERE: Final = logging.NullHandler()


def parser_of(verbs: Iterable[str] = VERBS) -> Parser:
    """The command line with these verbs; each is imported."""
    parser = Parser(prog="pillarbox", description="An open mail-queue server on PostgreSQL.")
    parser.add_argument("--version", action="store_true", help="print the version")
    subparsers = parser.add_subparsers(required=True, metavar="VERB")
    for verb in verbs:
        importlib.import_module(f"scripts.{VERBS[verb]}").add_parser(subparsers)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one verb."""
    given = sys.argv[1:] if arguments is None else arguments
    logging.getLogger("psycopg").addHandler(_NOWHERE)  # what it logs is in the error too
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(
            line_buffering=True,  # a line is there when it is printed, in a pipe too
            errors="backslashreplace",  # as on standard error: what a locale without UTF-8 lacks ends no command
        )
    try:
        return _run(given)
    except PillarboxError as error:
        if str(error):
            sys.stderr.write(f"pillarbox: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _discard_output()  # its reader has closed it
        return _UNREAD
    except Exception as error:  # noqa: BLE001 - others are raised again
        if isinstance(error, OSError) and _is_of_output(error):
            sys.stderr.write(f"pillarbox: standard output cannot be written: {error.strerror}\n")
            _discard_output()
            return _UNWRITTEN
        return status_of_refusal("pillarbox", error)


def _run(given: list[str]) -> int:
    """Run the verb that is named; its exit status."""
    if given == ["--version"]:
        print(f"pillarbox {version()}")
        return 0
    options = _parsed(given)  # imports the verb, which Ctrl-C may interrupt
    acting = AS.set(getattr(options, "principal", None))
    try:
        status: int = options.func(options)
    except UnicodeEncodeError as error:
        raise _of_a_word(error, given) from None
    finally:
        AS.reset(acting)
    return status


def _discard_output() -> None:
    """Discard the rest of the output, which would be written at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_of_output(error: OSError) -> bool:
    """Whether it says that standard output takes nothing more, as on a full disk: it then takes no line end either."""
    if error.filename is not None or error.errno not in OF_OUTPUT:
        return False
    try:
        print(flush=True)
    except OSError as again:
        return again.errno == error.errno
    return False


def _of_a_word(error: UnicodeEncodeError, given: list[str]) -> Exception:
    """This error; in one line if it is because of a word that is not UTF-8."""
    word = next((each for each in given if _NOT_UTF8.search(each)), None)
    return error if word is None else PillarboxError(f"{show(word)} is not UTF-8; allowed: words in UTF-8")


def _parsed(given: list[str]) -> argparse.Namespace:
    """The options of the verb that is wanted."""
    parser = parser_of([verb for verb in VERBS if verb in given[:1]] or VERBS)
    if given and given[0].startswith("-") and not any(known.startswith(given[0]) for known in _BEFORE_A_VERB):
        parser.error(f"{given[0]} comes before the verb; allowed: the verb first, as in `pillarbox queue list --json`")
    options, rest = parser.parse_known_args(given)
    if rest and (not hasattr(options, "condition") or any(word.startswith("-") for word in rest)):
        options.parser.unrecognized(rest, getattr(options, "advice", ""))
    if rest:
        options.condition += rest  # a condition may go on after an option
    return options


if __name__ == "__main__":
    sys.exit(main())
