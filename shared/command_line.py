"""command_line — the parser of every command line of Pillarbox: what is wrong with it is one line

Owns: the wording of argparse's refusals, the suggestion for a mistyped word, the line about a refusal of PostgreSQL's,
    and which errors are of standard output.
Guarantees: a command line that cannot be used is one line on standard error and exit status 2, before anything is done.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import sys
from typing import TYPE_CHECKING, Any, Final, NoReturn

from shared.errors import DatabaseUnavailable, first_line, is_of_server, lacks_right, lacks_schema, remedy
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterable

USAGE: Final = 2  # as argparse and most programs have it
#: Of the file or pipe that standard output is, and of no connection: its reader has closed it, or its disk is full.
OF_OUTPUT: Final = frozenset({errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO})
_VERB: Final = "VERB"  # the metavar of every choice of verbs


class Parser(argparse.ArgumentParser):
    """As argparse's, without the usage before an error; the parsers of its verbs are like it.

    The result of parsing has the parser of the innermost verb as `parser`.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.set_defaults(parser=self)

    def error(self, message: str) -> NoReturn:
        """Say it in one line and exit."""
        verbs = [verb for action in self._actions if action.metavar == _VERB for verb in action.choices or ()]
        if verbs and message.endswith(f"arguments are required: {_VERB}"):
            message = f"a {_VERB} is required; allowed: {', '.join(verbs)}"
        said = " ".join(message.split())
        sys.stderr.write(f"{self.prog}: {said}; see `{self.prog} --help`\n")
        sys.exit(USAGE)

    def unrecognized(self, words: Iterable[str], advice: str = "") -> NoReturn:
        """Refuse words that no option and no argument takes; `advice`: what to do, for a verb that knows."""
        words = list(words)
        known = list(self._option_string_actions)
        close = [option for word in words if word[:1] == "-" for option in difflib.get_close_matches(word, known, n=1)]
        suggestion = f"; did you mean {' '.join(close)}?" if close else f"; {advice}" if advice else ""
        self.error(f"unrecognized arguments: {' '.join(words)}{suggestion}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse's, in our words."""
        if action.choices is None or value in action.choices:
            return
        allowed = [str(choice) for choice in action.choices]
        close = difflib.get_close_matches(str(value), allowed, n=1)
        suggestion = f"; did you mean {close[0]}?" if close else ""
        raise argparse.ArgumentError(action, f"{show(value)} is unknown; allowed: {', '.join(allowed)}{suggestion}")


def status_of_refusal(name: str, error: Exception) -> int:
    """Write one line about what PostgreSQL refuses for want of a right or our schema, or cannot do now; the status.

    Raises any other error.
    """
    if not (lacks_right(error) or lacks_schema(error) or is_of_server(error)):
        raise error
    sys.stderr.write(f"{name}: {first_line(error)}{remedy(error)}\n")
    return DatabaseUnavailable.exit_status
