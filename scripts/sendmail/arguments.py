"""arguments — reads the command line of sendmail(1)

Owns: which options there are, which take a value, and what is ignored. Pure.
Guarantees: options that are meant for other mailers and change nothing here are accepted, as programs give them by
    habit. What asks for something that we do not do is refused.
Raises: NotUsable.
See: Postfix's sendmail(1) and Sendmail's, whose options programs use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Options whose value is the rest of the word, or the next word.
_WITH_VALUE: Final = "ABCFLNORVXfhrp"
#: Options without effect: aliases are not ours, and all mail is delivered in the background.
_WITHOUT: Final = "GUeimntv"
_OWN: Final = ("--server", "--spool", "--domain")
_MODES: Final = {"m": "send", "p": "list", "s": "smtp", "i": "nothing", "h": "nothing", "H": "nothing"}
_ALLOWED: Final = "-bm, -bp and -bs"


class NotUsable(ValueError):
    """The command line asks for something that is not done here; the text says what."""


@dataclass(slots=True)
class Asked:
    """What the command line asks for. mode: send, list, smtp, flush or nothing. dot: a line with a dot is the end."""

    mode: str = "send"
    recipients: list[str] = field(default_factory=list)
    from_header: bool = False
    sender: str | None = None
    full_name: str | None = None
    dot: bool = True
    server: str | None = None
    spool: str | None = None
    domain: str | None = None


def parse(words: Sequence[str]) -> Asked:
    """What these words ask for."""
    asked = Asked()
    rest = iter(words)
    for word in rest:
        if word == "--":
            asked.recipients += rest
        elif word.startswith("--"):
            _own(asked, word, rest)
        elif word.startswith("-") and len(word) > 1:
            _option(asked, word[1:], rest)
        else:
            asked.recipients.append(word)
    return asked


def _own(asked: Asked, word: str, rest: Iterator[str]) -> None:
    """An option of ours, which the file /usr/sbin/sendmail gives."""
    name, equals, value = word.partition("=")
    if name in {"--flush", "--help"} and not equals:
        asked.mode = name[2:]
        return
    if name not in _OWN:
        raise NotUsable(f"{show(word)} is unknown; allowed: {', '.join(_OWN)}, --flush and the options of sendmail(1)")
    value = value if equals else next(rest, "")
    if not value:
        raise NotUsable(f"{name} needs a value")
    setattr(asked, name[2:], value)


def _option(asked: Asked, letters: str, rest: Iterator[str]) -> None:
    """The options of one word: `-ti` is `-t -i`."""
    while letters:
        letter, letters = letters[0], letters[1:]
        if letter == "b":
            asked.mode = _mode(letters)
            return
        if letter in "oq":  # -oi, -odb, -q30m: the rest of the word belongs to it
            asked.dot = asked.dot and not (letter == "o" and letters == "i")
            asked.mode = "nothing" if letter == "q" else asked.mode
            return
        if letter in _WITH_VALUE:
            value = letters or next(rest, None)
            if value is None:
                raise NotUsable(f"-{letter} needs a value")
            _take(asked, letter, value)
            return
        if letter == "I":
            asked.mode = "nothing"
        elif letter not in _WITHOUT:
            raise NotUsable(f"-{letter} is unknown")
        asked.dot = asked.dot and letter != "i"
        asked.from_header = asked.from_header or letter == "t"


def _mode(letters: str) -> str:
    if letters not in _MODES:
        raise NotUsable(f"-b{letters} is not done here; allowed: {_ALLOWED}")
    return _MODES[letters]


def _take(asked: Asked, letter: str, value: str) -> None:
    if letter in "fr":
        asked.sender = "" if value == "<>" else value.removeprefix("<").removesuffix(">")
    elif letter == "F":
        asked.full_name = value
    elif letter == "O":
        asked.dot = asked.dot and value.partition("=")[0].lower() not in {"i", "ignoredots"}
