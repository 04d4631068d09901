"""options — the options that the command lines of several verbs share

Owns: the options nearly every verb has; numbers, spans of time and addresses as they are typed.
Guarantees: an invalid value is refused before anything is done, with the allowed values.
"""

from __future__ import annotations

import argparse
import re
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shared.config.units import parse_typed_duration
from shared.mail.address import AddressRefused, parse
from shared.masking import show
from shared.whole_number import DIGITS, LARGEST, whole_number

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from shared.mail.message import Address

MOST: Final = 10**9
_WHOLE: Final = re.compile(f"-?[0-9]{{1,{DIGITS}}}")

#: The principal that `--as` names; None without the option.
AS: Final[ContextVar[str | None]] = ContextVar("as", default=None)


def finish(
    verb: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    *,
    json: bool = True,
    acting: bool = False,
) -> None:
    """The options every verb has, and what it does; `acting`: also on whose behalf."""
    add_config(verb)
    if acting:
        add_as(verb)
    if json:
        verb.add_argument("--json", action="store_true", help="JSON for programs")
    verb.set_defaults(func=run)


def between(least: int, most: int) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def number(text: str) -> int:
        if _WHOLE.fullmatch(text) and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(f"{show(text)} is not a number from {least} to {most}")

    return number


#: A number of rows.
count: Final = between(1, MOST)
#: A priority of mail.
priority: Final = between(-9, 9)


def row_number(text: str) -> int:
    """The number of a row, as PostgreSQL's bigint has it."""
    if found := whole_number(text):
        return found
    raise argparse.ArgumentTypeError(f"{show(text)} is not the number of a row; allowed: 1 to {LARGEST}")


def duration(text: str) -> timedelta:
    """A span of time as in the configuration, but always with its unit."""
    try:
        return parse_typed_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def address(text: str) -> Address:
    """An address; its domain in A-labels, by which PostgreSQL's functions find the partition."""
    try:
        return parse(text)
    except AddressRefused as error:
        raise argparse.ArgumentTypeError(f"{show(text)}: {error}") from None


def add_as(parser: argparse.ArgumentParser) -> None:
    """The option that says on whose behalf a verb acts."""
    parser.add_argument(
        "--as", dest="principal", metavar="NAME", help="act for this principal (you, if you are one; else the login)"
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option that says where both files are."""
    parser.add_argument(
        "--config", type=Path, default=Path("config"), metavar="DIR", help="holds smtpd.yaml and queued.yaml (config)"
    )
