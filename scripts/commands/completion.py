"""completion — `pillarbox completion`: prints the completion of commands and options for a shell

Guarantees: made from the parser itself, so that it knows every verb and option of this version.
See: docs/how-to/operate/complete-commands.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import shtab

if TYPE_CHECKING:
    import argparse


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `completion` to the command line."""
    parser = subparsers.add_parser("completion", help="print the completion of commands and options for bash or zsh")
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")
    parser.set_defaults(func=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    cli = importlib.import_module("scripts.cli")  # which has imported this file
    print(shtab.complete(cli.parser_of(), options.shell))
    return 0
