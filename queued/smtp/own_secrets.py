"""own_secrets — the passwords and tokens by which we log in, to be masked where a host says them back

Owns: OwnSecrets, the one masking for every reply text: of a worker, and within that of one session.
Guarantees: a secret is found raw, in base64 as it was sent or inside of other base64, and percent-encoded, with '+' or
    nothing in place of blanks, folded over several lines of a reply, and where the reply was cut off in the middle of
    it. Text that holds none of them comes back as it is, and a reply keeps its lines. A worker's secrets outlive the
    session, the token and the configuration that they were used by, because a host remembers them too: the latest
    _KEPT of each login.
See: queued/smtp/auth.py, which says what is secret; queued/smtp/wire.py, which masks replies before any other part
    of the program sees them.
Bugs: a host can say a secret back in a form of its own, as a digest or in hexadecimal, or a part of it in each of
    several replies: that is not found. A secret that is a word of other replies is masked there as well.
"""

from __future__ import annotations

import re
from base64 import b64encode
from itertools import islice
from typing import Final

from shared.mail.smtp_reply import Reply
from shared.masking import MASK

_SHORT: Final = 4  # octets; a shorter part of a secret, or of its base64, would be found in harmless text
# White space with the enhanced code that each line of a reply repeats, '+', a percent-encoded octet, any other.
_FOLD: Final = r"\s+(?:[245]\.\d{1,3}\.\d{1,3}(?=\s))?|\++"
_FOLDS: Final = re.compile(_FOLD)
_PIECE: Final = re.compile(_FOLD + r"|%([0-9A-Fa-f]{2})|(.)", re.DOTALL)
_KEPT: Final = 32  # secrets of one login, the latest: tokens are replaced every hour
_URL: Final = str.maketrans("+/", "-_")  # base64 as it is written in URLs
_CUT: Final = re.compile(r"…|\[\d+ lines? left out\]")  # of shared/mail/smtp_reply.py


class OwnSecrets:
    """Secrets of a worker, or of one server of tokens; or, within these, of one session. forms: what is looked for."""

    def __init__(self, secret: str | None = None, within: OwnSecrets | None = None) -> None:
        """`secret`: the password or the token of the session."""
        self._within = within
        self._held: dict[str, dict[str, set[bytes]]] = {}
        self.forms: set[bytes] = set()
        self.begin: set[bytes] = set()  # how the forms begin
        if secret is not None:
            self._look_for(_forms(secret))

    def __bool__(self) -> bool:
        """Whether there is something to mask."""
        return bool(self.forms or self._within)

    def hold(self, login: str, secret: str) -> None:
        """Mask this secret of a login from now on, in sessions that are open too; too short a one would be anywhere."""
        held = self._held.setdefault(login, {})
        if secret in held:
            held[secret] = held.pop(secret)  # the latest now
            return
        held[secret] = {form for form in _forms(secret) if len(form) >= _SHORT}
        for outdated in tuple(islice(held, max(0, len(held) - _KEPT))):
            del held[outdated]
        self.forms, self.begin = set(), set()
        for each in self._held.values():
            self._look_for(set().union(*each.values()))

    def add(self, encoded: str) -> None:
        """Also what was sent for the secret of this session, in base64."""
        self._look_for(_bare_forms(encoded) | _bare_forms(encoded.translate(_URL)))

    def _look_for(self, forms: set[bytes]) -> None:
        self.forms |= forms
        self.begin |= {form[:_SHORT] for form in forms}

    def reply(self, reply: Reply) -> Reply:
        """The same reply where there is nothing to mask in it."""
        text = "\n".join(reply.lines)
        clean = self.clean(text)
        return reply if clean == text else Reply(reply.code, reply.enhanced, tuple(clean.split("\n")), reply.ours)

    def clean(self, text: str) -> str:
        """The text without what we would not want to be read."""
        if not self or not self._is_suspect(text):
            return text
        forms = self.forms if self._within is None else self.forms | self._within.forms
        bared = _Bared(text)
        hidden = [(at, at + len(form)) for form in forms for at in _places(form, bared.octets)]
        hidden += _beside_cuts(forms, bared, text)
        if not hidden:
            return text
        pieces: list[str] = []
        done = 0
        for first, last in sorted((bared.places[begin][0], bared.places[end - 1][1]) for begin, end in hidden):
            if first > done or not pieces:
                pieces += [text[done:first], MASK]
            done = max(done, last)
        return "".join([*pieces, text[done:]])

    def _is_suspect(self, text: str) -> bool:
        """Whether it is worth a search, which takes ten times as long; nearly no reply is."""
        if "%" in text or _CUT.search(text) is not None:
            return True
        octets = _FOLDS.sub("", text).encode("utf-8", "replace")
        begin = self.begin if self._within is None else (*self.begin, *self._within.begin)
        return any(each in octets for each in begin)


def _forms(secret: str) -> set[bytes]:
    """A secret as it may be said: raw, as base64, and as the part of other base64 that it alone decides."""
    octets = secret.encode()
    encoded = {b64encode(octets).decode()}
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(octets)) // 6
        inside = b64encode(bytes(before) + octets)[first:last].decode()
        if len(inside) >= _SHORT:
            encoded.add(inside)
    forms = _bare_forms(secret)
    for each in encoded:
        forms |= _bare_forms(each) | _bare_forms(each.translate(_URL))
    return forms


def _bare_forms(text: str) -> set[bytes]:
    forms = set()
    for octets in (_bare(text), _Bared(text).octets):
        if octets:
            forms.add(octets)
        if len(unpadded := octets.rstrip(b"=")) >= _SHORT:
            forms.add(unpadded)
    return forms


def _beside_cuts(forms: set[bytes], bared: _Bared, text: str) -> list[tuple[int, int]]:
    """The part of a secret that ends, or begins, where the rest of a reply was left out."""
    found: list[tuple[int, int]] = []
    for cut in _CUT.finditer(text):
        before = sum(last <= cut.start() for _, last in bared.places)
        after = sum(first < cut.end() for first, _ in bared.places)
        for form in forms:
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
