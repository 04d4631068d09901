"""arguments — reads the command line of sendmail(1)

Owns: which options there are, which take a value, and what is ignored. Pure.
Guarantees: options that are meant for other mailers and change nothing here are accepted, as programs give them by
    habit. What asks for something that we do not do is refused, and so is a message to an option that sends none:
    status 0 would say that it was sent.
Raises: NotUsable.
See: Postfix's sendmail(1) and Sendmail's, whose options programs use; RFC 3461 sections 4.1, 4.3 and 4.4 for -N, -R
    and -V.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from shared.mail.dsn import ENVID_LIMIT, NOTIFY, RET
from shared.mail.xtext import encode
from shared.masking import show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Options whose value is the rest of the word, or the next word.
_WITH_VALUE: Final = "ABCFLNORVXbefhopr"
#: Options without effect: aliases are not ours, and all mail is delivered in the background.
_WITHOUT: Final = "GUimntv"
_OWN: Final = ("--server", "--spool", "--domain")
_MODES: Final = {"m": "send", "p": "list", "s": "smtp", "i": "nothing", "h": "nothing", "H": "nothing"}
_ALLOWED: Final = "-bm, -bp and -bs"
_VERP: Final = re.compile(r"V(?:..)?")  # of Postfix; for Sendmail the value is the name of a log


class NotUsable(ValueError):
    """The command line asks for something that is not done here; the text says what."""


@dataclass(slots=True)
class Asked:
    """What the command line asks for.

    mode: send, list, smtp, flush or nothing. dot: a line with a dot is the end. notify, returned, envid: the parameters
    NOTIFY, RET and ENVID of SMTP, "" where nothing was said.
    """

    mode: str = "send"
    recipients: list[str] = field(default_factory=list)
    from_header: bool = False
    sender: str | None = None
    full_name: str | None = None
    dot: bool = True
    server: str | None = None
    spool: str | None = None
    domain: str | None = None
    notify: str = ""
    returned: str = ""
    envid: str = ""


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
    if asked.mode not in {"send", "help"} and (asked.recipients or asked.from_header):
        raise NotUsable(
            "-bi, -bp, -bs, -q and --flush take no message for a recipient; allowed with them: no address, no -t"
        )
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
        if letter == "q":  # -q, -qRexample.com; an interval is for a daemon
            asked.mode = asked.mode if letters[:1].isdigit() else "nothing"
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
    elif letter == "b":
        asked.mode = _mode(value)
    elif letter == "o":
        asked.dot = asked.dot and value != "i"
    elif letter == "O":
        _long(asked, *value.lower().split("=", 1))
    elif letter == "N":
        asked.notify = _notify(value)
    elif letter == "R":
        asked.returned = _returned(value)
    elif letter == "V":
        asked.envid = _envid(value)
    elif letter == "X" and _VERP.fullmatch(value):
        raise NotUsable(f"-X{value} (VERP) is not done here")


def _long(asked: Asked, name: str, value: str = "") -> None:
    """Sendmail's long options, `-O IgnoreDots=true`; Postfix's -O REQUIRETLS=yes must not be ignored."""
    if name == "requiretls" and value == "yes":
        raise NotUsable("-O REQUIRETLS=yes is not done here: smtpd takes it over TLS only")
    asked.dot = asked.dot and name not in {"i", "ignoredots"}


def _notify(value: str) -> str:
    words = value.upper().split(",")
    if words != ["NEVER"] and not set(words) <= NOTIFY:
        raise NotUsable(f"-N {show(value)} is unknown; allowed: never, or a list of success, failure and delay")
    return ",".join(words)


def _returned(value: str) -> str:
    if value.upper() not in RET:
        raise NotUsable(f"-R {show(value)} is unknown; allowed: full and hdrs")
    return value.upper()


def _envid(value: str) -> str:
    encoded = encode(value) if value.isascii() and value.isprintable() else ""
    if not 0 < len(encoded) <= ENVID_LIMIT:
        raise NotUsable(f"-V {show(value)} is not usable; allowed: printable ASCII, {ENVID_LIMIT} characters in xtext")
    return encoded
