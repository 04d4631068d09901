"""behaviour — reads the sink's behaviour from a recipient's address

Owns: the table of words that script the sink, and their meaning.
Guarantees: pure; an address without such a word is simply accepted.
The word ends the local part, so `bob.temperror@example.com` and `temperror@example.com` both work:
    temperror permerror   451 or 550 at RCPT          greylist    451 at RCPT the first time, then 250
    NNNrcpt   NNNdot      that 4yz/5yz code at RCPT, or after the final dot (451dot, 550dot, 552rcpt)
    timeout   hangdata    RCPT, or DATA, is never answered
    hangdot               recorded, but the final dot is never answered
    dropdata              hangs up when content begins to arrive
    dropdot               recorded, then hangs up without a reply to the final dot
    slowN                 recorded and accepted, N seconds after the final dot (slow2, slow0.1)
With several such recipients in one transaction the gravest holds after DATA, in the order of Ending.
See: the localserve mode of mox, which scripts its failures in the same place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Ending(IntEnum):
    """The end of a transaction from DATA on, the gravest last."""

    ACCEPT = 0
    SLOW = 1
    REFUSE = 2
    HANG_DOT = 3
    DROP_DOT = 4
    DROP_DATA = 5
    HANG_DATA = 6


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How one recipient is treated.

    rcpt_code: reply code at RCPT, None for no answer at all. once: only the first time it is asked for.
    ending: see Ending. dot_code: reply code after the final dot. delay: seconds before that reply.
    """

    rcpt_code: int | None = 250
    once: bool = False
    ending: Ending = Ending.ACCEPT
    dot_code: int = 250
    delay: float = 0.0


ACCEPT: Final = Behaviour()

_WORDS: Final[dict[str, Behaviour]] = {
    "temperror": Behaviour(rcpt_code=451),
    "permerror": Behaviour(rcpt_code=550),
    "greylist": Behaviour(rcpt_code=451, once=True),
    "timeout": Behaviour(rcpt_code=None),
    "hangdata": Behaviour(ending=Ending.HANG_DATA),
    "hangdot": Behaviour(ending=Ending.HANG_DOT),
    "dropdata": Behaviour(ending=Ending.DROP_DATA),
    "dropdot": Behaviour(ending=Ending.DROP_DOT),
}
_WORD: Final = re.compile(
    rf"(?:(?P<word>{'|'.join(_WORDS)})|(?P<rcpt>[45]\d\d)rcpt|(?P<dot>[45]\d\d)dot|slow(?P<slow>\d+(?:\.\d+)?))$"
)


def behaviour_of(recipient: str) -> Behaviour:
    """The behaviour a recipient's local part asks for."""
    local_part = recipient.rpartition("@")[0] or recipient
    match = _WORD.search(local_part.strip('"').lower())
    if match is None:
        return ACCEPT
    if match["word"]:
        return _WORDS[match["word"]]
    if match["rcpt"]:
        return Behaviour(rcpt_code=int(match["rcpt"]))
    if match["dot"]:
        return Behaviour(ending=Ending.REFUSE, dot_code=int(match["dot"]))
    return Behaviour(ending=Ending.SLOW, delay=float(match["slow"]))


def gravest(first: Behaviour, second: Behaviour) -> Behaviour:
    """Which of two recipients' behaviours decides about their transaction."""
    return second if (second.ending, second.delay) > (first.ending, first.delay) else first
