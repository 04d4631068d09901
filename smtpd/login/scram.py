"""scram — the server's side of SCRAM-SHA-256 and -PLUS, as a machine of values

Owns: the messages and the proof. Pure: no socket, no lookup, no clock.
Guarantees: proofs and channel bindings are compared in constant time. A client that was kept from -PLUS by an attacker
    between us is refused (section 6). Any deviation from the grammar is ScramRefused.
Raises: ScramRefused, whose text is for the log, never for the client.
See: RFC 5802, RFC 7677. Own, because the library that we use as a client (scramp) asks for the user in the middle of a
    message without awaiting, knows one binding for each server, takes a binding in a mechanism without -PLUS, and
    refuses an authorization name and salts under 12 octets; it is the client the tests run against.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from secrets import token_urlsafe
from typing import TYPE_CHECKING

from shared.security.saslprep import NotPrepared, prepared
from shared.security.scram_keys import DIGEST_OCTETS, SALT_OCTETS, ScramKeys
from smtpd.login.secret import cost_of_unknown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_FIRST = re.compile(r"(?P<header>(?P<flag>[ny]|p=(?P<type>[A-Za-z0-9.-]+)),(?:a=(?P<authzid>[^,]+))?,)(?P<bare>.*)")
_BARE = re.compile(r"n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]{1,256})(?:,[A-Za-z]=[^,]+)*")
_FINAL = re.compile(r"(?P<unproven>c=(?P<binding>[^,]+),r=(?P<nonce>[^,]+)(?:,[A-Za-z]=[^,]+)*),p=(?P<proof>[^,]+)")
_BAD_ESCAPE = re.compile(r"=(?!2C|3D)")


class ScramRefused(Exception):
    """The exchange failed."""


def unknown_keys(secret: bytes, name: str, costs: Collection[int]) -> ScramKeys:
    """The keys for an unknown user, always the same for a name (RFC 5802 section 9); `costs`: of iterations."""
    iterations = cost_of_unknown(secret, name, "iterations", costs)
    salt = _hmac(secret, b"salt " + name.encode())[:SALT_OCTETS]
    return ScramKeys(iterations, salt, _hmac(secret, b"stored " + name.encode()), bytes(DIGEST_OCTETS))


class ScramServer:
    """One exchange: `first`, `challenge`, `final`, in this order."""

    def __init__(self, *, plus: bool, plus_offered: bool, bindings: Mapping[str, bytes], nonce: str = "") -> None:
        """`plus`: the mechanism's name ends in -PLUS; `bindings`: channel binding data by type (RFC 5929, 9266)."""
        self._plus = plus
        self._plus_offered = plus_offered
        self._bindings = bindings
        self._nonce = nonce or token_urlsafe(18)
        self._keys: ScramKeys
        self._header = self._bare = self._server_first = ""
        self._binding = b""

    def first(self, message: bytes) -> str:
        """Read client-first-message; the prepared user name."""
        match = _FIRST.fullmatch(_text(message))
        if match is None or not (bare := _BARE.fullmatch(match["bare"])):
            raise ScramRefused("malformed client-first-message")
        self._check_binding(match["flag"], match["type"])
        name = _unescaped(bare["name"])
        if match["authzid"] is not None and _unescaped(match["authzid"]) != name:
            raise ScramRefused("wants to act as another user")
        self._header, self._bare = match["header"], match["bare"]
        self._nonce = bare["nonce"] + self._nonce
        return name

    def challenge(self, keys: ScramKeys) -> bytes:
        """server-first-message for these keys."""
        self._keys = keys
        self._server_first = f"r={self._nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        return self._server_first.encode()

    def final(self, message: bytes) -> bytes:
        """Check client-final-message; server-final-message, which proves us to the client."""
        text = _text(message)
        if not (match := _FINAL.fullmatch(text)):
            raise ScramRefused("malformed client-final-message")
        if not hmac.compare_digest(_decoded(match["binding"]), self._header.encode() + self._binding):
            raise ScramRefused("channel bindings differ")
        if not hmac.compare_digest(match["nonce"].encode(), self._nonce.encode()):
            raise ScramRefused("nonces differ")
        said = f"{self._bare},{self._server_first},{match['unproven']}".encode()
        proof = _decoded(match["proof"])
        if len(proof) != DIGEST_OCTETS:
            raise ScramRefused("the proof has the wrong length")
        signature = _hmac(self._keys.stored, said)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._keys.stored):
            raise ScramRefused("the proof is wrong")
        return b"v=" + b64encode(_hmac(self._keys.server, said))

    def _check_binding(self, flag: str, kind: str | None) -> None:
        """RFC 5802 section 6."""
        if kind is not None and not self._plus:
            raise ScramRefused("channel binding in a mechanism without -PLUS")
        if kind is None and self._plus:
            raise ScramRefused("no channel binding in a mechanism with -PLUS")
        if flag == "y" and self._plus_offered:
            raise ScramRefused("was shown no channel binding, though we offer it: our EHLO reply lost its -PLUS")
        if kind is not None:
            if kind not in self._bindings:
                raise ScramRefused(f"channel binding {kind} is not available on this connection")
            self._binding = self._bindings[kind]


def _unescaped(name: str) -> str:
    """RFC 5802 section 5.1: =2C and =3D; then SASLprep."""
    if _BAD_ESCAPE.search(name):
        raise ScramRefused("a name with an = that is not an escape")
    try:
        return prepared(name.replace("=2C", ",").replace("=3D", "="))
    except NotPrepared as error:
        raise ScramRefused(f"the name {error}") from None


def _text(message: bytes) -> str:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramRefused("not UTF-8") from None
    if "\0" in text:
        raise ScramRefused("a NUL")
    return text


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise ScramRefused("not base64") from None


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
