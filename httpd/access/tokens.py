"""tokens — OIDC tokens of people: whom a provider says that a request, or a sign-in, is from

Owns: the provider's keys, and what must be right about a token: signature, issuer, audience, times, and the claim that
    names a principal.
Guarantees: only signatures by public keys are taken, with keys of the issuer's own description. Keys are asked for when
    a token names an unknown one, and hourly; while the provider is away the known ones are good for a day. A token is
    in no log and no error.
Raises: TokenRefused; ProviderAway.
See: OpenID Connect Discovery 1.0 sections 3 and 4.3; RFC 7519 (JWT), RFC 8725 (its best practices), RFC 9068.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import ssl
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jwt

from shared.config.httpd.oidc import is_url
from shared.http import HttpClient, HttpFailed
from shared.masking import show
from shared.observe import events

if TYPE_CHECKING:
    from shared.config.httpd.oidc import HttpdOidc

_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_LATEST: Final = 253_402_300_799  # seconds since 1970 at the end of the year 9999, the last that datetime has
_LEEWAY: Final = 30.0  # seconds that clocks may be apart
_LONGEST: Final = 1 << 18  # octets of an answer of the provider
_PATIENCE: Final = 5.0  # seconds for both answers
_AGAIN: Final = 10.0  # seconds after which it is asked once more for an unknown key, or after a failure
_HOURLY: Final = 3600.0
_OLDEST: Final = 86_400.0  # seconds for which keys are good without the provider
_DESCRIPTION: Final = "/.well-known/openid-configuration"


class TokenRefused(Exception):
    """The token is not good here; the text says why."""


class ProviderAway(Exception):
    """The provider does not answer, and without its keys no token can be judged."""


class Named(NamedTuple):
    """Whom a token names, and when it ends."""

    principal: str
    expires: datetime


def is_token(text: str) -> bool:
    """Whether this has the form of a signed token (RFC 7515 section 7.1)."""
    return text.count(".") == 2  # noqa: PLR2004 - header, claims, signature


class Tokens:
    """The tokens of one provider."""

    def __init__(self, settings: HttpdOidc, again: float = _AGAIN) -> None:
        """`again`: seconds after which the provider is asked once more for a key that is not known."""
        self.settings = settings
        self._again = again
        self._client = HttpClient(_LONGEST, ssl.create_default_context())
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._described: dict[str, Any] = {}
        self._got = self._asked = -_OLDEST  # when keys came, and when they were asked for
        self._asking = asyncio.Lock()

    async def named(self, token: str) -> Named:
        """Whom this token for the API names."""
        return self._named(await self._claims(token, self.settings.audience))

    async def signed_in(self, token: str, client: str, nonce: str) -> Named:
        """Whom the ID token of a sign-in names, which was asked for with this nonce (OIDC Core 3.1.3.7)."""
        claims = await self._claims(token, client)
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise TokenRefused("the token is of another sign-in")
        if claims.get("azp", client) != client:
            raise TokenRefused("the token is for another client")
        return self._named(claims)

    async def described(self) -> dict[str, Any]:
        """What the provider says of itself: its endpoints, and what it supports."""
        async with self._asking:
            if not self._described and monotonic() - self._asked >= self._again:
                self._asked = monotonic()
                await self._ask()
        if not self._described:
            raise ProviderAway
        return self._described

    async def _claims(self, token: str, audience: str) -> dict[str, Any]:
        """What a token says that is good, and for this audience."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError:
            raise TokenRefused("this is neither an API key nor a token") from None
        if header.get("alg") not in _ALGORITHMS:
            raise TokenRefused("the token is not signed by a public key")
        key = await self._key(header.get("kid"))
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],
                audience=audience,
                issuer=self.settings.issuer,
                leeway=_LEEWAY,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except (jwt.InvalidTokenError, jwt.InvalidKeyError) as error:
            raise TokenRefused(self._why(error, audience)) from None
        return claims

    def _named(self, claims: dict[str, Any]) -> Named:
        return Named(self._principal(claims), datetime.fromtimestamp(min(int(claims["exp"]), _LATEST), UTC))

    def _principal(self, claims: dict[str, Any]) -> str:
        claim = self.settings.claim
        name = claims.get(claim)
        if not isinstance(name, str) or not name:
            raise TokenRefused(f"no {claim} of the token names a principal")
        if claim == "email" and claims.get("email_verified") is not True:
            raise TokenRefused("the provider has not verified the token's email")
        return name

    def _why(self, error: Exception, audience: str) -> str:
        match error:
            case jwt.ExpiredSignatureError():
                return "the token has expired"
            case jwt.ImmatureSignatureError():
                return "the token is not valid yet"
            case jwt.InvalidAudienceError():
                return f"the token is for something else; allowed: the audience {audience}"
            case jwt.InvalidIssuerError():
                return f"the token is of another issuer; allowed: {self.settings.issuer}"
            case jwt.MissingRequiredClaimError():
                return f"the token has no {error.claim}"
            case _:
                return "the token is not valid"

    async def _key(self, name: object) -> jwt.PyJWK:
        """The key of this name, or the only one where a token names none."""
        async with self._asking:
            now = monotonic()
            wanted = self._found(name) is None or now - self._got > _HOURLY
            if wanted and now - self._asked >= self._again:
                self._asked = now
                await self._ask()
            if now - self._got > _OLDEST:
                raise ProviderAway
            found = self._found(name)
        if found is None:
            raise TokenRefused("the token is signed by a key that the provider does not have")
        return found

    def _found(self, name: object) -> jwt.PyJWK | None:
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name) if isinstance(name, str) else None

    async def _ask(self) -> None:
        """Take the provider's keys as they are now; what goes wrong is an event."""
        try:
            async with asyncio.timeout(_PATIENCE):
                described = await self._get(self.settings.issuer.rstrip("/") + _DESCRIPTION)
                found = jwt.PyJWKSet.from_dict(await self._get(self._place_of_keys(described)))
        except (HttpFailed, ValueError, TimeoutError, jwt.PyJWTError) as error:
            events.emit("oidc.unreachable", issuer=self.settings.issuer, error=str(error) or "no answer in time")
            return
        self._keys = {key.key_id: key for key in found.keys if key.public_key_use in {None, "sig"}}
        self._described = described
        self._got = monotonic()

    def _place_of_keys(self, described: dict[str, Any]) -> str:
        """Where the provider's description says that its keys are."""
        if described.get("issuer") != self.settings.issuer:
            raise HttpFailed(f"the description is of the issuer {show(described.get('issuer'))}")
        where = described.get("jwks_uri")
        if not isinstance(where, str) or not is_url(where):
            raise HttpFailed("the description has no jwks_uri that may be used")
        return where

    async def _get(self, url: str) -> dict[str, Any]:
        answer = await self._client.ask("GET", url, [("Accept", "application/json"), ("User-Agent", "Pillarbox")])
        if answer.status != 200:  # noqa: PLR2004 - OK
            raise HttpFailed(f"{url} answers {answer.status}")
        found = json.loads(answer.body)
        if not isinstance(found, dict):
            raise HttpFailed(f"{url} is not a JSON object")
        return found
