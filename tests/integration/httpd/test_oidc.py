"""test_oidc — people show tokens of a real OpenID Connect provider, and nothing that only looks like one is taken

Owns: proofs about httpd/access/tokens.py, and about keys.py where a token is shown.
See: docs/how-to/send/use-api-keys.md; RFC 8725 section 2 (attacks on tokens).
"""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.utils import base64url_encode

from httpd.access.tokens import ProviderAway, TokenRefused, Tokens
from shared.config.httpd.oidc import HttpdOidc
from shared.config.httpd.settings import HttpdConfig
from tests.fixtures.daemons.api import Api
from tests.fixtures.peers.web.oidc_provider import AUDIENCE, Provider, Signer, signed
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory


def settings(provider: Provider, **more: Any) -> dict[str, Any]:
    """The section of httpd.yaml."""
    return {"issuer": provider.issuer, "audience": AUDIENCE, **more}


def forged(provider: Provider) -> str:
    """A token that is signed with the provider's public key, as if that were a secret (RFC 8725 section 2.1)."""
    public = provider.signer.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = base64url_encode(b'{"alg":"HS256","kid":"first"}')
    signed_part = head + b"." + signed(provider).split(".")[1].encode()
    return (signed_part + b"." + base64url_encode(hmac.digest(public, signed_part, "sha256"))).decode()


async def status(client: httpx.AsyncClient) -> int:
    return (await client.get("/v1/queue")).status_code


async def test_people_do_by_their_tokens_what_their_roles_allow(
    system: System, factory: Factory, oidc_provider: Provider
) -> None:
    factory.row()
    async with Api(system, await system.httpd(oidc=settings(oidc_provider), rates={"failures": 0})) as api:
        by_key = await api.caller("olga", "operator", kind="person")
        await api.key("ann", "viewer", kind="person")
        await api.key("shop", "operator", kind="application")
        tokens = {name: await oidc_provider.token(name) for name in ("olga", "ann", "shop", "stranger")}
        clients = {name: await api.client(token) for name, token in tokens.items()}
        assert [await status(each) for each in (*clients.values(), by_key)] == [200, 200, 401, 401, 200]
        stranger = await clients["stranger"].get("/v1/queue")
        assert stranger.json()["detail"] == '"stranger", whom the token names, is not a principal of kind person'
        assert stranger.headers["www-authenticate"].startswith("Bearer")
        everything = {"all": True}
        assert (await clients["ann"].post("/v1/queue/hold", json=everything)).status_code == 403
        held = (await clients["olga"].post("/v1/queue/hold", json=everything)).json()
        assert await system.rows("SELECT who, done FROM audit WHERE id = %s", held["audit"]) == [("olga", 1)]
        await system.rows("UPDATE principals SET disabled = true WHERE name = 'olga'")

        async def refused() -> bool:
            return await status(clients["olga"]) == 401

        await eventually(refused, "a disabled principal's token is refused")
        assert not [name for name, token in tokens.items() if token.rpartition(".")[2] in api.daemon.log]


async def test_what_only_looks_like_a_good_token_is_refused(system: System, oidc_provider: Provider) -> None:
    stolen, past = Signer("first"), datetime.now(UTC) - timedelta(minutes=2)
    claims = {"iss": oidc_provider.issuer, "aud": AUDIENCE, "sub": "olga", "exp": 4_000_000_000}
    good = signed(oidc_provider)
    head, _, signature = good.split(".")
    other = signed(oidc_provider, sub="ann").split(".")[1]
    bad = {
        "without a signature": jwt.encode(claims, "", "none"),
        "signed with the public key as a secret": forged(oidc_provider),
        "signed by another key of the same name": signed(oidc_provider, stolen),
        "signed by an unknown key": signed(oidc_provider, name="other"),
        "with changed claims": f"{head}.{other}.{signature}",
        "expired": signed(oidc_provider, exp=past),
        "without an end": signed(oidc_provider, exp=None),
        "not valid yet": signed(oidc_provider, nbf=datetime.now(UTC) + timedelta(minutes=2)),
        "for something else": signed(oidc_provider, aud="https://other.example"),
        "for nothing": signed(oidc_provider, aud=None),
        "of another issuer": signed(oidc_provider, iss="https://other.example"),
        "without a subject": signed(oidc_provider, sub=None),
        "cut off": good[:-10],
        "dots alone": "..",
    }
    async with Api(system, await system.httpd(oidc=settings(oidc_provider), rates={"failures": 0})) as api:
        await api.key("olga", "operator", kind="person")
        assert await status(await api.client(good)) == 200
        assert await status(await api.client(signed(oidc_provider, exp=10**12))) == 200  # beyond the last year there is
        found = {what: await status(await api.client(token)) for what, token in bad.items()}
    assert found == dict.fromkeys(bad, 401)


async def test_failed_tokens_count_as_failed_keys_do(system: System, oidc_provider: Provider) -> None:
    async with Api(system, await system.httpd(oidc=settings(oidc_provider), rates={"failures": 3})) as api:
        client = await api.client(signed(oidc_provider, aud="other"))
        assert [await status(client) for _ in range(4)] == [401] * 3 + [429]


async def test_a_token_is_no_key_where_no_provider_is_named(api: Api, oidc_provider: Provider) -> None:
    await api.key("olga", "operator", kind="person")
    refused = await (await api.client(await oidc_provider.token("olga"))).get("/v1/queue")
    assert (refused.status_code, "this is not an API key" in refused.json()["detail"]) == (401, True)


async def test_an_email_names_a_principal_only_where_the_provider_has_verified_it(oidc_provider: Provider) -> None:
    tokens = Tokens(HttpdOidc.model_validate(settings(oidc_provider, claim="email")))
    named = await tokens.named(signed(oidc_provider, email="olga@example.com", email_verified=True))
    assert named.principal == "olga@example.com"
    for verified in (False, "true", None):
        with pytest.raises(TokenRefused, match="has not verified"):
            await tokens.named(signed(oidc_provider, email="olga@example.com", email_verified=verified))


async def test_keys_may_change_and_known_ones_hold_while_the_provider_is_away(oidc_provider: Provider) -> None:
    tokens = Tokens(HttpdOidc.model_validate(settings(oidc_provider)), again=0)
    before = signed(oidc_provider)
    assert (await tokens.named(before)).principal == "olga"
    oidc_provider.stop()
    assert (await tokens.named(before)).principal == "olga"
    oidc_provider.signer = Signer("second")
    after = signed(oidc_provider)
    with pytest.raises(TokenRefused, match="a key that the provider does not have"):
        await tokens.named(after)
    with pytest.raises(ProviderAway):
        await Tokens(HttpdOidc.model_validate(settings(oidc_provider))).named(after)
    oidc_provider.start()
    assert (await tokens.named(after)).principal == "olga"
    with pytest.raises(TokenRefused):
        await tokens.named(before)


async def test_without_the_provider_tokens_wait_and_keys_work(system: System, oidc_provider: Provider) -> None:
    oidc_provider.stop()
    async with Api(system, await system.httpd(oidc=settings(oidc_provider))) as api:
        assert await status(await api.caller("olga", "operator", kind="person")) == 200
        away = await (await api.client(signed(oidc_provider))).get("/v1/queue")
        assert (away.status_code, "retry-after" in away.headers) == (503, True)
        assert oidc_provider.issuer in away.json()["detail"]
        assert await api.daemon.until_said("oidc.unreachable")


@pytest.mark.parametrize(
    "issuer", ["http://login.example.com", "login.example.com", "https://x/?a", "https://x:99999", "ftp://x", ""]
)
def test_an_issuer_is_asked_by_https_or_on_this_host(issuer: str) -> None:
    with pytest.raises(ValueError, match="begins with https://"):
        HttpdConfig.model_validate({"oidc": {"issuer": issuer, "audience": "x"}})
