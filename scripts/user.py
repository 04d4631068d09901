"""user — `pillarbox user hash`: the line for `authentication.users`

Owns: making an argon2 hash an operator can paste into smtpd.yaml.
Called by: scripts.cli.
Guarantees: the password is never an argument, so it is in no process list and no shell history.
See: smtpd/authenticate.py; RFC 9106.
"""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

from argon2 import PasswordHasher

from shared.errors import PillarboxError

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `user` and its verbs to the command line."""
    parser = subparsers.add_parser("user", help="who may submit after authenticating")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    verb = verbs.add_parser("hash", help="read a password, print the line for authentication.users")
    verb.add_argument("name", help="the user's name")
    verb.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Ask for the password (or read it from a pipe) and print `name: "hash"`."""
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not password:
        raise PillarboxError("an empty password is none")
    print(f'{options.name}: "{PasswordHasher().hash(password)}"')
    return 0
