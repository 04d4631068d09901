"""sasl — the mechanisms by which we log in, as state machines over octets

Guarantees: no I/O. A machine answers each challenge or raises SaslError; `prove` raises unless the server has given the
    proof of its mechanism: with SCRAM that it knows the password too, so an impostor is not believed. The work that a
    server can cause is bounded: at most 10,000,000 iterations, and `answer` may run outside the event loop.
    No error holds a secret.
See: RFC 4422; RFC 4616 (PLAIN); draft-murchison-sasl-login (LOGIN); RFC 5802 and RFC 7677 (SCRAM-SHA-256);
    RFC 5929 section 4 (tls-server-end-point); RFC 7628 (OAUTHBEARER);
    https://developers.google.com/workspace/gmail/imap/xoauth2-protocol (XOAUTH2).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Protocol

import scramp

from shared.mail.smtp_reply import printable

if TYPE_CHECKING:
    from ssl import SSLObject

    from shared.config.queued.login import Mechanism

_LONGEST: Final = 200  # characters of what a server says of a token
_BINDING: Final = "tls-server-end-point"


class SaslError(Exception):
    """The exchange cannot go on, by the server's fault; the text says why."""


class Machine(Protocol):
    """One exchange: `first`, then `answer` for each challenge, then `prove`.

    heavy: whether `answer` may take long enough to be worth a thread. refusal: what the server said of our token before
    it refused it, or "".
    """

    heavy: bool
    refusal: str

    def first(self) -> bytes | None:
        """The initial response to send with the mechanism's name; None where the server speaks first."""

    def answer(self, challenge: bytes) -> bytes:
        """The response to a challenge."""

    def prove(self) -> None:
        """Raise SaslError unless the server has proved itself, now that it has accepted the login."""


def machine(mechanism: Mechanism, user: str, secret: str, session: SSLObject | None, host: str, port: int) -> Machine:
    """The machine of a mechanism. secret: password or token; session: TLS, which -PLUS binds to."""
    if mechanism == "PLAIN":
        return _Once(b"\0" + user.encode() + b"\0" + secret.encode())
    if mechanism == "LOGIN":
        return _Login(user, secret)
    if mechanism == "OAUTHBEARER":
        return _OAuthBearer(user, secret, host, port)
    if mechanism == "XOAUTH2":
        return _XOAuth2(user, secret)
    return _Scram(mechanism, user, secret, session)


class _Once:
    """PLAIN: everything at once."""

    heavy = False
    refusal = ""

    def __init__(self, message: bytes) -> None:
        self._message: bytes | None = message

    def first(self) -> bytes | None:
        message, self._message = self._message, None
        return message

    def answer(self, challenge: bytes) -> bytes:
        del challenge
        raise SaslError("unexpected extra challenge from the host")

    def prove(self) -> None:
        """It asks no proof."""


class _Login:
    """LOGIN: the name, then the password; what the challenges say differs from server to server."""

    heavy = False
    refusal = ""

    def __init__(self, user: str, password: str) -> None:
        self._left = [password.encode(), user.encode()]

    def first(self) -> bytes | None:
        return None

    def answer(self, challenge: bytes) -> bytes:
        del challenge
        if not self._left:
            raise SaslError("unexpected extra challenge from the host")
        return self._left.pop()

    def prove(self) -> None:
        if self._left:
            raise SaslError("host accepted the login before it asked for the password")


class _Token:
    """A bearer token: one message; a server that refuses it says why in a challenge, and refuses after our answer."""

    heavy = False
    acknowledge = b""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self.refusal = ""

    def first(self) -> bytes | None:
        return self._message

    def answer(self, challenge: bytes) -> bytes:
        if self.refusal:
            raise SaslError("unexpected extra challenge from the host")
        self.refusal = _status(challenge)
        return self.acknowledge

    def prove(self) -> None:
        if self.refusal:
            raise SaslError(f"host accepted the login but rejected the token: {self.refusal}")


class _XOAuth2(_Token):
    def __init__(self, user: str, token: str) -> None:
        super().__init__(f"user={user}\x01auth=Bearer {token}\x01\x01".encode())


class _OAuthBearer(_Token):
    acknowledge = b"\x01"  # RFC 7628 section 3.2.3

    def __init__(self, user: str, token: str, host: str, port: int) -> None:
        # RFC 5801 section 4: in an authzid the comma and = are written =2C and =3D.
        name = user.replace("=", "=3D").replace(",", "=2C")
        message = f"n,a={name},\x01host={host}\x01port={port}\x01auth=Bearer {token}\x01\x01"
        super().__init__(message.encode())


class _Scram:
    """SCRAM-SHA-256, with channel binding in -PLUS."""

    heavy = True  # PBKDF2
    refusal = ""

    def __init__(self, mechanism: str, user: str, password: str, session: SSLObject | None) -> None:
        binding = (_BINDING, session) if mechanism.endswith("-PLUS") and session is not None else None
        try:
            self._client = scramp.ScramClient([mechanism], user, password, channel_binding=binding)
        except (scramp.ScramException, ValueError):
            # Not its text, which may speak of the password's characters.
            raise SaslError(f"name or password cannot be used with {mechanism} (RFC 4013)") from None
        self._step = 0

    def first(self) -> bytes | None:
        return str(self._client.get_client_first()).encode()

    def answer(self, challenge: bytes) -> bytes:
        self._step += 1
        try:
            said = challenge.decode()
            if self._step == 1:
                self._client.set_server_first(said)
                return str(self._client.get_client_final()).encode()
            if self._step == 2:  # noqa: PLR2004 - server-final-message
                self._client.set_server_final(said)
                return b""
        except Exception as error:  # noqa: BLE001 - of what a server may say scramp has more than one opinion
            if self._step == 2:  # noqa: PLR2004 - as above
                raise SaslError("host does not prove that it knows the password") from None
            why = str(error) if isinstance(error, scramp.ScramException) else "malformed"
            raise SaslError(f"invalid SCRAM message from the host: {_cut(printable(why.encode()))}") from None
        raise SaslError("unexpected extra challenge from the host")

    def prove(self) -> None:
        if self._step != 2:  # noqa: PLR2004 - as above
            raise SaslError("host accepted the login without proving that it knows the password")


def binds(session: SSLObject | None) -> bool:
    """Whether -PLUS can be had: the host has shown a certificate to bind to."""
    return session is not None and session.getpeercert(binary_form=True) is not None


def _status(challenge: bytes) -> str:
    """Why a token was refused: RFC 7628 section 3.2.2 has it in JSON."""
    try:
        said = json.loads(challenge)
        found = said["status"] if isinstance(said, dict) else said
    except (ValueError, KeyError, RecursionError):
        found = "no reason"
    return _cut(printable(str(found).encode(errors="replace"))) or "no reason"


def _cut(text: str) -> str:
    """Not too long; the cut is marked, because half a secret is only looked for beside such a mark."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
