"""own_secrets — what we have said of our login in a session, to be masked where the host says it back

Owns: OwnSecrets, the one masking for every reply text of a session in which we log in.
Guarantees: pure; a secret is found raw, in base64 as it was sent, and percent-encoded, with '+' or nothing in place of
    blanks, folded over several lines of a reply, and where the reply was cut off in the middle of it. Text that holds
    none of them comes back as it is.
See: queued/smtp/auth.py, which says what is secret; queued/smtp/wire.py, which masks replies before any other part
    of the program sees them.
Bugs: a host can say a secret back in a form of its own, as a digest or in hexadecimal: that is not found.
"""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Final

from shared.mail.smtp_reply import Reply
from shared.masking import MASK

_SHORT: Final = 4  # octets; a shorter part of a secret, or of its base64, would be found in harmless text
# White space with the enhanced code that each line of a reply repeats, '+', a percent-encoded octet, any other.
_PIECE: Final = re.compile(r"\s+(?:[245]\.\d{1,3}\.\d{1,3}(?=\s))?|\++|%([0-9A-Fa-f]{2})|(.)", re.DOTALL)
_URL: Final = str.maketrans("+/", "-_")  # base64 as it is written in URLs
_CUT: Final = re.compile(r"…|\[\d+ lines? left out\]")  # of shared/mail/smtp_reply.py


class OwnSecrets:
    """The secrets of one session."""

    def __init__(self, secret: str) -> None:
        """With the password or the token itself."""
        self._forms: set[bytes] = set()
        self._add(secret)
        self.add(b64encode(secret.encode()).decode())

    def add(self, encoded: str) -> None:
        """Also what was sent for it, in base64."""
        self._add(encoded)
        self._add(encoded.translate(_URL))

    def _add(self, text: str) -> None:
        for octets in (_bare(text), _Bared(text).octets):
            if octets:
                self._forms.add(octets)
            if len(unpadded := octets.rstrip(b"=")) >= _SHORT:
                self._forms.add(unpadded)

    def reply(self, reply: Reply) -> Reply:
        """The same reply where there is nothing to mask in it."""
        text = " ".join(reply.lines)
        clean = self.clean(text)
        return reply if clean == text else Reply(reply.code, reply.enhanced, (clean,), reply.ours)

    def clean(self, text: str) -> str:
        """The text without what we would not want to be read."""
        bared = _Bared(text)
        hidden = [(at, at + len(form)) for form in self._forms for at in _places(form, bared.octets)]
        hidden += self._beside_cuts(bared, text)
        if not hidden:
            return text
        pieces: list[str] = []
        done = 0
        for first, last in sorted((bared.places[begin][0], bared.places[end - 1][1]) for begin, end in hidden):
            if first > done or not pieces:
                pieces += [text[done:first], MASK]
            done = max(done, last)
        return "".join([*pieces, text[done:]])

    def _beside_cuts(self, bared: _Bared, text: str) -> list[tuple[int, int]]:
        """The part of a secret that ends, or begins, where the rest of a reply was left out."""
        found: list[tuple[int, int]] = []
        for cut in _CUT.finditer(text):
            before = sum(last <= cut.start() for _, last in bared.places)
            after = sum(first < cut.end() for first, _ in bared.places)
            for form in self._forms:
                for length in range(min(len(form), before), _SHORT - 1, -1):
                    if bared.octets[:before].endswith(form[:length]):
                        found.append((before - length, before))
                        break
                for length in range(min(len(form), len(bared.octets) - after), _SHORT - 1, -1):
                    if bared.octets.startswith(form[-length:], after):
                        found.append((after, after + length))
                        break
        return found


class _Bared:
    """Text as octets, decoded and without what folds it; places: where in the text each octet comes from."""

    def __init__(self, text: str) -> None:
        octets = bytearray()
        self.places: list[tuple[int, int]] = []
        for piece in _PIECE.finditer(text):
            encoded, plain = piece.groups()
            some = bytes.fromhex(encoded) if encoded else (plain or "").encode("utf-8", "replace")
            octets += some
            self.places += [piece.span()] * len(some)
        # What was encoded may have been a blank or '+'.
        kept = [number for number, octet in enumerate(octets) if octet not in b" \t\r\n+"]
        self.octets = bytes(octets[number] for number in kept)
        self.places = [self.places[number] for number in kept]


def _bare(text: str) -> bytes:
    """The same of what we say, where '%' is a character like any other."""
    return b"".join(part.encode() for part in re.split(r"[\s+]+", text))


def _places(form: bytes, octets: bytes) -> list[int]:
    found = []
    at = octets.find(form)
    while at >= 0:
        found.append(at)
        at = octets.find(form, at + 1)
    return found
