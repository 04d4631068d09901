"""provider — people sign in at their OpenID Connect provider: what the browser brings there, and what it brings back

Owns: the state, the nonce and the verifier of PKCE of one sign-in, which come of one random value in the browser's
    cookie; the exchange of the code for an ID token.
Guarantees: an answer counts only in the browser that asked for it, for the page that it asked for, and with a token
    that was made for this sign-in. A code of another sign-in is refused by the provider, since the verifier differs. No
    code, token and secret is in a log or an error.
Raises: SignInRefused; ProviderAway; TokenRefused.
See: OpenID Connect Core 1.0 section 3.1; RFC 7636 (PKCE); RFC 9207 (iss); RFC 9700 (best practices).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
from asyncio import timeout
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from httpd.access.tokens import ProviderAway
from shared import secret_files
from shared.config.httpd.oidc import is_url
from shared.http import HttpClient, HttpFailed
from shared.observe import events

if TYPE_CHECKING:
    from httpd.access.tokens import Named, Tokens
    from shared.config.httpd.oidc import HttpdOidcClient

_LONGEST: Final = 1 << 18  # octets of an answer of the provider
_PATIENCE: Final = 10.0  # seconds for it
_SCOPES: Final = {"sub": "openid", "email": "openid email"}
_FORM: Final = "application/x-www-form-urlencoded"


class SignInRefused(Exception):
    """The sign-in is not good; the text says why."""


class Provider:
    """The provider, as the client of this name asks it. back: where it sends the browser back to."""

    def __init__(self, tokens: Tokens, client: HttpdOidcClient, back: str) -> None:
        self._tokens, self._client, self._back = tokens, client, back
        self.issuer = tokens.settings.issuer

    async def address(self, secret: str, after: str) -> str:
        """Where the browser signs in. secret: the cookie's. after: the page to go on to."""
        from authlib.oauth2.rfc6749.parameters import prepare_grant_uri  # noqa: PLC0415 - it takes 0.1 s
        from authlib.oauth2.rfc7636 import create_s256_code_challenge  # noqa: PLC0415 - as above

        endpoint = await self._endpoint("authorization_endpoint")
        address: str = prepare_grant_uri(
            endpoint, self._client.id, "code", self._back, _SCOPES.get(self._tokens.settings.claim, "openid profile"),
            _state(secret, after), nonce=_part(secret, "nonce"), code_challenge_method="S256",
            code_challenge=create_s256_code_challenge(_part(secret, "verifier")),
        )  # fmt: skip
        return address

    async def end(self) -> str:
        """Where a person ends the session at the provider; empty where it names no such place."""
        described = await self._tokens.described()
        where = described.get("end_session_endpoint")
        return f"{where}?{urlencode({'client_id': self._client.id})}" if is_url(where) else ""

    async def named(self, secret: str, answer: dict[str, str]) -> tuple[Named, str]:
        """Whom the provider's answer names, and the page to go on to. answer: the fields that the browser brings."""
        after = _after(secret, answer.get("state", ""))
        if answer.get("iss", self.issuer) != self.issuer:
            raise SignInRefused(f"the answer is of another provider; allowed: {self.issuer}")
        if "error" in answer:
            raise SignInRefused(f"the provider refuses it: {answer['error'][:100]}")
        if not answer.get("code"):
            raise SignInRefused("the provider's answer has no code")
        token = await self._exchanged(secret, answer["code"])
        return await self._tokens.signed_in(token, self._client.id, _part(secret, "nonce")), after

    async def _exchanged(self, secret: str, code: str) -> str:
        """The ID token for this code."""
        from authlib.oauth2.auth import ClientAuth  # noqa: PLC0415 - it takes 0.1 s
        from authlib.oauth2.rfc6749.parameters import prepare_token_request  # noqa: PLC0415 - as above

        endpoint = await self._endpoint("token_endpoint")
        verifier = _part(secret, "verifier")
        body = prepare_token_request("authorization_code", "", self._back, code=code, code_verifier=verifier)
        headers = {"Content-Type": _FORM, "Accept": "application/json", "User-Agent": "Pillarbox"}
        try:
            known = None if self._client.secret is None else secret_files.read(self._client.secret)
            prepared = ClientAuth(self._client.id, known, await self._way(known)).prepare(
                "POST", endpoint, headers, body
            )
            url, headers, body = prepared
            async with timeout(_PATIENCE):
                answer = await HttpClient(_LONGEST, ssl.create_default_context()).ask(
                    "POST", url, headers.items(), body.encode()
                )
            answered: Any = json.loads(answer.body)
        except (HttpFailed, ValueError, TimeoutError, secret_files.UnusableSecret) as error:
            known_why = isinstance(error, HttpFailed | secret_files.UnusableSecret)
            raise self._away(str(error) if known_why else "no answer that is JSON") from None
        token = answered.get("id_token") if isinstance(answered, dict) and answer.status == 200 else None  # noqa: PLR2004 - OK
        if not isinstance(token, str):
            said = answered.get("error") if isinstance(answered, dict) else None
            raise SignInRefused(f"the provider gives no token: {str(said)[:100] if said else answer.status}")
        return token

    async def _way(self, secret: str | None) -> str:
        """How this client proves itself to the provider."""
        if secret is None:
            return "none"
        described = await self._tokens.described()
        ways: Any = described.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return "client_secret_basic" if "client_secret_basic" in ways else "client_secret_post"

    async def _endpoint(self, name: str) -> str:
        where = (await self._tokens.described()).get(name)
        if not isinstance(where, str) or not is_url(where):
            raise self._away(f"the description has no {name} that may be used")
        return where

    def _away(self, why: str) -> ProviderAway:
        events.emit("oidc.unreachable", issuer=self.issuer, error=why)
        return ProviderAway()


def _part(secret: str, name: str) -> str:
    """A value for one purpose: 256 bits, which say nothing of the secret and of each other."""
    made = hmac.digest(secret.encode("utf-8", "replace"), name.encode("utf-8", "replace"), hashlib.sha256)
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def _state(secret: str, after: str) -> str:
    """What the provider sends back: a proof of the cookie, and the page to go on to."""
    page = base64.urlsafe_b64encode(after.encode()).decode()
    return f"{_part(secret, f'state {after}')}.{page}"


def _after(secret: str, state: str) -> str:
    """The page that this state names; SignInRefused for one of another browser, or that was changed."""
    try:
        after = base64.b64decode(state.partition(".")[2].encode(), b"-_", validate=True).decode()
    except ValueError:
        after = ""
    if not secret or not hmac.compare_digest(_state(secret, after).encode(), state.encode("utf-8", "replace")):
        raise SignInRefused("this sign-in was begun in another browser, or too long ago; begin it here once more")
    return after
