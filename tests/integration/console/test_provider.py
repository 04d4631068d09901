"""test_provider — people sign in to the console at a real OpenID Connect provider, and by no answer that looks like its

Owns: proofs about httpd/access/provider.py, and about the console's part of tokens.py.
See: RFC 9700 section 4 (attacks on sign-ins); OpenID Connect Core 1.0 section 3.1.3.7.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.async_api import expect

from httpd.access.tokens import TokenRefused, Tokens
from shared.config.httpd.oidc import HttpdOidc
from shared.config.httpd.settings import HttpdConfig
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import PASSWORD, path_of, post, set_password, signed_in
from tests.fixtures.peers.web.chromium import browsing
from tests.fixtures.peers.web.oidc_provider import AUDIENCE, Provider, signed

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from tests.fixtures.daemons.system import System

_ASK = "/console/sign-in/provider?next=%2Fconsole%2Fqueue"


def settings(provider: Provider, folder: Path) -> dict[str, Any]:
    """The section of httpd.yaml."""
    secret = folder / "secret"
    secret.write_text("secret of the console\n")
    secret.chmod(0o600)
    client = {"id": "console", "secret": {"file": str(secret)}}
    return {"issuer": provider.issuer, "audience": AUDIENCE, "client": client}


async def answered(api: Api, provider: Provider, client: httpx.AsyncClient, person: str) -> dict[str, str]:
    """The fields with which the provider sends this browser back, which has signed in as this person."""
    asked = await client.get(_ASK)
    assert asked.status_code == 303, asked.text
    where = await provider.walked(asked.headers["location"], person, f"{api.url}/console/sign-in/done")
    return fields(where)


def fields(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


async def back(client: httpx.AsyncClient, answer: dict[str, str]) -> httpx.Response:
    return await client.get(f"/console/sign-in/done?{urlencode(answer)}")


async def test_people_sign_in_at_the_provider_and_what_is_not_their_sign_in_is_refused(
    system: System, oidc_provider: Provider
) -> None:
    oidc = settings(oidc_provider, system.folder)
    async with Api(system, await system.httpd(oidc=oidc, console={"failures": 0})) as api:
        for name in ("olga", "gone"):
            await api.key(name, "operator", kind="person")
        await api.key("shop", "operator", kind="application")
        await system.rows("UPDATE principals SET disabled = true WHERE name = 'gone'")
        client = await api.client()
        shown = (await client.get("/console/sign-in?next=/console/queue")).text
        assert 'href="/console/sign-in/provider?next=%2Fconsole%2Fqueue"' in shown
        asked = await client.get(_ASK)
        query = parse_qs(urlsplit(asked.headers["location"]).query)
        assert (query["code_challenge_method"], query["response_type"]) == (["S256"], ["code"])
        cookie = asked.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("httponly", "samesite=lax", "path=/console/sign-in/done", "max-age=600"))

        # Before the good answer each bad one, which uses up nothing but the browser's memory of the sign-in.
        good = await answered(api, oidc_provider, client, "olga")
        secret = client.cookies["pillarbox_asking"]
        other = await api.client()
        of_other = await answered(api, oidc_provider, other, "olga")
        bad = {
            "changed state": {**good, "state": f"x{good['state']}"},
            "another page": {**good, "state": f"{good['state'].partition('.')[0]}.L2NvbnNvbGUv"},
            "no state": {"code": good["code"]},
            "no code": {"state": good["state"]},
            "another issuer": {**good, "iss": "https://evil.example"},
            "another browser's code": {**good, "code": of_other["code"]},
            "a refusal": {"state": good["state"], "error": "access_denied<b>"},
        }
        for what, answer in bad.items():
            refused = await back(client, answer)
            assert refused.status_code == 401, (what, refused.text)
            assert "pillarbox_asking" not in client.cookies, what
            assert "<b>Pillarbox" in refused.text
            assert "access_denied<b>" not in refused.text
            client.cookies.set("pillarbox_asking", secret, path="/console/sign-in/done", domain="127.0.0.1")
        assert (await back(await api.client(), good)).status_code == 401  # a browser that has begun none

        done = await back(client, good)
        assert (done.status_code, path_of(done)) == (303, "/console/queue")
        assert "olga" in (await client.get("/console/account")).text
        assert (await client.get("/console/queue")).status_code == 200
        assert (await client.get("/console/people")).status_code == 403
        client.cookies.set("pillarbox_asking", secret, path="/console/sign-in/done", domain="127.0.0.1")
        replayed = await back(client, good)
        assert (replayed.status_code, "gives no token: invalid_grant" in replayed.text) == (401, True)

        for name in ("stranger", "shop", "gone"):
            visitor = await api.client()
            refused = await back(visitor, await answered(api, oidc_provider, visitor, name))
            assert (refused.status_code, "is not a person here" in refused.text) == (401, True), name
        for hidden in ("secret of the console", good["code"], secret):
            assert hidden not in api.daemon.log


async def test_a_session_of_the_provider_ends_as_any_other_and_local_people_need_no_provider(
    system: System, oidc_provider: Provider
) -> None:
    oidc = settings(oidc_provider, system.folder)
    async with Api(system, await system.httpd(oidc=oidc)) as api:
        await api.key("olga", "operator", kind="person")
        client = await api.client()
        await back(client, await answered(api, oidc_provider, client, "olga"))
        out = await post(client, "/console/account", "/console/sign-out")
        assert "sign out there" in (await client.get(path_of(out))).text
        assert (await client.get("/console/account")).status_code == 303
        again = await back(client, await answered(api, oidc_provider, client, "olga"))
        assert (again.status_code, (await client.get("/console/account")).status_code) == (303, 200)
        await system.rows("UPDATE web_sessions SET made = now() - interval '13 h', expires = now()")
        assert (await client.get("/console/account")).status_code == 303

        await set_password(api, "rita", "reviewer")
        oidc_provider.stop()
        state = fields((await client.get(_ASK)).headers["location"])["state"]  # what it says of itself is known
        away = await back(client, {"state": state, "code": "x"})
        assert (away.status_code, "retry-after" in away.headers) == (503, True)
        assert await api.daemon.until_said("oidc.unreachable")
        assert (await (await signed_in(api, "rita")).get("/console/held")).status_code == 200


async def test_a_token_of_another_sign_in_client_or_issuer_is_no_sign_in(oidc_provider: Provider) -> None:
    tokens = Tokens(HttpdOidc.model_validate({"issuer": oidc_provider.issuer, "audience": AUDIENCE}))

    def made(claims: dict[str, Any]) -> str:
        return signed(oidc_provider, **{"aud": "console", "nonce": "right"} | claims)

    assert (await tokens.signed_in(made({}), "console", "right")).principal == "olga"
    wrong: dict[str, dict[str, Any]] = {
        "of another sign-in": {"nonce": "wrong"},
        "without a nonce": {"nonce": None},
        "for the API": {"aud": AUDIENCE},
        "for another client": {"aud": ["console", "other"], "azp": "other"},
        "of another issuer": {"iss": "https://evil.example"},
    }
    for what, claims in wrong.items():
        with pytest.raises(TokenRefused):
            assert await tokens.signed_in(made(claims), "console", "right"), what
    with pytest.raises(TokenRefused, match="for something else"):
        await tokens.named(made({}))  # nor is the ID token one for the API


async def test_failed_answers_are_counted_and_without_a_client_there_is_no_such_door(
    system: System, oidc_provider: Provider
) -> None:
    oidc = settings(oidc_provider, system.folder)
    async with Api(system, await system.httpd(oidc=oidc, console={"failures": 3})) as api:
        client = await api.client()
        found = [(await back(client, {"state": "x", "code": "y"})).status_code for _ in range(4)]
        assert found == [401] * 3 + [429]
    del oidc["client"]
    async with Api(system, await system.httpd("second", oidc=oidc)) as api:
        client = await api.client()
        assert "sign-in/provider" not in (await client.get("/console/sign-in")).text
        assert ((await client.get(_ASK)).status_code, (await back(client, {})).status_code) == (404, 404)


def test_the_client_of_the_console_is_not_the_audience_of_the_api() -> None:
    oidc = {"issuer": "https://login.example.com", "audience": "x", "client": {"id": "x"}}
    with pytest.raises(ValueError, match="would be a token for the API"):
        HttpdConfig.model_validate({"oidc": oidc})


async def test_a_person_signs_in_at_the_provider_in_a_browser(system: System, oidc_provider: Provider) -> None:
    async with Api(system, await system.httpd(oidc=settings(oidc_provider, system.folder))) as api, browsing() as page:
        await api.key("olga", "operator", kind="person")
        await page.goto(f"{api.url}/console/queue")
        await page.get_by_role("link", name="Sign in with 127.0.0.1").click()
        await page.locator("input[name=login]").fill("olga")
        await page.locator("input[name=password]").fill("any")
        await page.get_by_role("button", name="Sign-in").click()
        await page.get_by_role("button", name="Continue").click()
        await expect(page).to_have_url(re.compile(r"/console/queue$"))
        await expect(page.get_by_role("link", name="olga")).to_be_visible()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("status")).to_contain_text("sign out there")
        await page.get_by_label("Name").fill("olga")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("the name or the password is wrong")
