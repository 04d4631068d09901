"""test_sign_in — people sign in to the console, and nobody else gets past it

Owns: proofs about httpd/console/sign_in.py, visitor.py and forms.py, and sql/schema/23_web.sql, over real connections.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final

import pytest
from starlette.routing import Route

from httpd.console.application import pages_of
from httpd.console.body import PREFIX
from httpd.console.pages import HEADERS
from httpd.console.site import Site
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import PASSWORD, change_ended, link, path_of, post, set_password, signed_in
from tests.fixtures.database.operating import write_config
from tests.fixtures.database.reviewing import hold
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from typing import LiteralString

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

ROLES: Final = ("viewer", "reviewer", "operator", "admin", "sender")
ALL: Final = frozenset(ROLES)
READ: Final = ALL - {"sender"}
REVIEW: Final = READ - {"viewer"}
OPERATE: Final = REVIEW - {"reviewer"}
ADMIN: Final = frozenset({"admin"})
#: Each address of the console that is for people who are signed in, by method, and for whom.
ADDRESSES: Final = [
    ("GET", "/console/", ALL),
    ("GET", "/console/account", ALL),
    ("GET", "/console/now", READ),
    ("GET", "/console/now/events", READ),
    ("GET", "/console/queue", READ),
    ("POST", "/console/queue/views", READ),
    ("GET", "/console/queue/{id}", READ),
    ("GET", "/console/history", READ),
    ("GET", "/console/history/report?since=x&until=y", READ),
    ("GET", "/console/act?verb=delete&id={id}", OPERATE),
    ("POST", "/console/act", OPERATE),
    ("GET", "/console/quarantine", REVIEW),
    ("GET", "/console/held", REVIEW),
    ("GET", "/console/held/{id}", REVIEW),
    ("GET", "/console/held/{id}/raw", REVIEW),
    ("POST", "/console/held/{id}/rescan", REVIEW),
    ("GET", "/console/configuration", OPERATE),
    ("GET", "/console/decide?verb=release&id={id}", REVIEW),
    ("POST", "/console/decide", REVIEW),
    ("GET", "/console/decided/4711", REVIEW),
    ("POST", "/console/decided/4711/undo", REVIEW),
    ("GET", "/console/suspends", READ),
    ("POST", "/console/suspends", OPERATE),
    ("GET", "/console/suppressions", READ),
    ("POST", "/console/suppressions", OPERATE),
    ("GET", "/console/schedules", READ),
    ("POST", "/console/schedules", OPERATE),
    ("GET", "/console/deadletters", READ),
    ("POST", "/console/deadletters", OPERATE),
    ("GET", "/console/webhooks", OPERATE),
    ("POST", "/console/webhooks", OPERATE),
    ("GET", "/console/keys", ADMIN),
    ("POST", "/console/keys", ADMIN),
    ("GET", "/console/people", ADMIN),
    ("POST", "/console/people", ADMIN),
    ("GET", "/console/audit", REVIEW),
    ("GET", "/console/blocked", REVIEW),
    ("POST", "/console/blocked/end", REVIEW),
    ("GET", "/console/held/{id}/block", REVIEW),
    ("POST", "/console/held/{id}/block", REVIEW),
    ("POST", "/console/sign-out", ALL),
    ("POST", "/console/sign-out-everywhere", ALL),
]


async def test_a_link_lets_a_person_choose_a_password_once_and_looking_at_it_changes_nothing(api: Api) -> None:
    path = await link(api, "rita", "reviewer")
    client = await api.client()
    for _ in range(2):
        shown = await client.get(path)
        assert (shown.status_code, "rita" in shown.text) == (200, True)
    token = path.partition("token=")[2]
    short = await client.post("/console/link", data={"link": token, "password": "short", "again": "short"})
    assert (short.status_code, "12 to 200" in short.text) == (422, True)
    differs = await client.post("/console/link", data={"link": token, "password": PASSWORD, "again": PASSWORD + "x"})
    assert (differs.status_code, "the passwords differ" in differs.text) == (422, True)
    chosen = await client.post("/console/link", data={"link": token, "password": PASSWORD, "again": PASSWORD})
    assert (chosen.status_code, path_of(chosen)) == (303, "/console/")
    cookie = chosen.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/console/;" in cookie
    assert path_of(await client.get("/console/")) == "/console/quarantine"
    again = await client.post("/console/link", data={"link": token, "password": PASSWORD, "again": PASSWORD})
    assert (again.status_code, (await client.get(path)).status_code) == (404, 404)
    kept = await api.system.rows("SELECT digest::text, seal::text FROM web_sessions")
    assert token not in str(kept)
    assert token not in api.daemon.log


async def test_a_later_link_replaces_the_earlier_and_its_use_ends_every_session(api: Api) -> None:
    client = await signed_in(api, "rita", "reviewer")
    first, second = await link(api, "rita"), await link(api, "rita")
    other = await api.client()
    assert (await other.get(first)).status_code == 404
    assert (await client.get("/console/account")).status_code == 200
    form = {"link": second.partition("token=")[2], "password": f"{PASSWORD} 2", "again": f"{PASSWORD} 2"}
    assert (await other.post("/console/link", data=form)).status_code == 303
    assert path_of(await client.get("/console/account")).startswith("/console/sign-in")
    old = await client.post("/console/sign-in", data={"name": "rita", "password": PASSWORD})
    assert old.status_code == 401


async def test_names_that_are_not_known_are_refused_in_the_same_words_and_too_many_tries_are_not_read(
    system: System,
) -> None:
    async with Api(system, await system.httpd(console={"failures": 3})) as api:
        await set_password(api, "rita", "reviewer")
        client = await api.client()
        said = {
            (await client.post("/console/sign-in", data={"name": name, "password": "wrong"})).text.replace(name, "")
            for name in ("rita", "nobody", "\x00odd")
        }
        assert len({text for text in said if "the name or the password is wrong" in text}) == len(said)
        many = await client.post("/console/sign-in", data={"name": "rita", "password": PASSWORD})
        assert many.status_code == 429
        assert int(many.headers["retry-after"]) > 0
        assert api.daemon.said("console.refused")[0]["name"] == "rita"
        assert PASSWORD not in api.daemon.log


async def test_wrong_passwords_are_counted_for_all_processes_of_httpd_together_also_at_once(system: System) -> None:
    async with (
        Api(system, await system.httpd(console={"failures": 3})) as one,
        Api(system, await system.httpd("second", console={"failures": 3})) as two,
    ):
        await set_password(one, "rita", "reviewer")
        clients = [await api.client() for api in (one, two) for _ in range(5)]
        # Who is right is not counted.
        for client in clients[:4]:
            right = await client.post("/console/sign-in", data={"name": "rita", "password": PASSWORD})
            assert right.status_code == 303
        form = {"name": "rita", "password": "wrong"}
        answers = await asyncio.gather(*(client.post("/console/sign-in", data=form) for client in clients))
        assert sorted(answer.status_code for answer in answers) == [401] * 3 + [429] * 7
        right = await clients[-1].post("/console/sign-in", data={"name": "rita", "password": PASSWORD})
        assert right.status_code == 429


async def test_sign_ins_counted_before_the_clock_was_put_back_refuse_none(system: System) -> None:
    async with Api(system, await system.httpd(console={"failures": 3})) as api:
        await set_password(api, "rita", "reviewer")
        client, form = await api.client(), {"name": "rita", "password": PASSWORD}
        assert (await client.post("/console/sign-in", data=form)).status_code == 303
        ahead = "UPDATE web_failures SET paid_until = paid_until + interval '2 hours' RETURNING paid_until"
        assert await api.system.rows(ahead)
        assert (await client.post("/console/sign-in", data=form)).status_code == 303
        wrong = [
            (await client.post("/console/sign-in", data={**form, "password": "wrong"})).status_code for _ in range(4)
        ]
        assert wrong == [401, 401, 401, 429]


async def test_every_address_asks_for_a_session_and_for_the_role_and_every_page_has_its_headers(
    system: System, factory: Factory
) -> None:
    write_config(system.folder, system.uri)
    [held] = hold(factory, "legal")
    async with Api(system, await system.httpd()) as api:
        people = {role: await signed_in(api, role, role) for role in ROLES}
        nobody = await api.client()
        for method, address, allowed in ADDRESSES:
            path = address.replace("{id}", str(held))
            answer = await nobody.request(method, path)
            assert path_of(answer).startswith("/console/sign-in"), (method, path)
            for role, client in people.items():
                # Without a form: whom the page is for gets 415, and nothing is changed. Some answers have no end.
                async with client.stream(method, path) as answer:
                    refused = role not in allowed
                    assert (answer.status_code == 403) == refused, (method, path, role, answer.status_code)
                    assert answer.status_code != 415 or method == "POST"
                    if not path.endswith("/raw") or refused:
                        assert {name: answer.headers[name] for name in HEADERS} == HEADERS, (path, role)
        assert [row.status for row in factory.queue(held)] == ["HOLD"]


def test_every_route_is_among_these_addresses() -> None:
    open_to_all = {
        "/",
        "/console",
        "/console/sign-in",
        "/console/sign-in/provider",
        "/console/sign-in/done",
        "/console/link",
        "/console/static/{name}",
        "/decide",
    }
    site = Site.__new__(Site)
    routes = {
        (method, route.path)
        for route in pages_of(site)
        if isinstance(route, Route) and route.path not in open_to_all and not route.path.startswith(PREFIX)
        for method in route.methods or ()
        if method != "HEAD"
    }
    asked = {(method, address.partition("?")[0].replace("4711", "{id}")) for method, address, _ in ADDRESSES}
    assert {(method, re.sub(r"\{(\w+):\w+\}", r"{\1}", path)) for method, path in routes} == asked


async def test_a_form_counts_only_with_the_token_of_its_session_and_from_our_own_pages(
    api: Api, factory: Factory
) -> None:
    [held] = hold(factory, "legal")
    rita, mary = await signed_in(api, "rita", "reviewer"), await signed_in(api, "mary", "reviewer")
    form = {"verb": "delete", "id": str(held), "reason": ""}
    assert (await rita.post("/console/decide", data=form)).status_code == 403
    assert (await rita.post("/console/decide", data={**form, "token": "0" * 64})).status_code == 403
    page = (await mary.get("/console/account")).text
    of_mary = page.partition('name="token" value="')[2][:64]
    assert (await rita.post("/console/decide", data={**form, "token": of_mary})).status_code == 403
    own = (await rita.get("/console/account")).text.partition('name="token" value="')[2][:64]
    for header in (
        *({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://["}),
        {"Sec-Fetch-Site": "cross-site"},
    ):
        sent = await rita.post("/console/decide", data={**form, "token": own}, headers=header)
        assert sent.status_code == 403, header
        signing = await rita.post("/console/sign-in", data={"name": "rita", "password": PASSWORD}, headers=header)
        assert signing.status_code == 403, header
    assert [row.status for row in factory.queue(held)] == ["HOLD"]
    sent = await rita.post("/console/decide", data={**form, "token": own}, headers={"Origin": api.url})
    assert sent.status_code == 303
    await change_ended(rita, sent)
    assert [row.status for row in factory.queue(held)] == ["DELETE"]


async def test_a_session_ends_by_signing_out_after_its_time_when_idle_and_with_its_person(api: Api) -> None:
    one, two = await signed_in(api, "rita", "reviewer"), await signed_in(api, "rita")
    assert (await post(one, "/console/account", "/console/sign-out")).status_code == 303
    assert path_of(await one.get("/console/account")).startswith("/console/sign-in")
    assert "this one" in (await two.get("/console/account")).text
    three = await signed_in(api, "rita")
    await post(two, "/console/account", "/console/sign-out-everywhere")
    assert (await three.get("/console/account")).status_code == 303

    over: tuple[LiteralString, ...] = (
        "UPDATE web_sessions SET made = now() - interval '13 h', expires = now()",
        "UPDATE web_sessions SET seen = now() - interval '2 h'",
        "UPDATE principals SET disabled = true WHERE name = 'rita'",
    )
    for statement in over:
        client = await signed_in(api, "rita")
        assert (await client.get("/console/account")).status_code == 200
        await api.system.rows(statement)
        assert (await client.get("/console/account")).status_code == 303, statement


async def test_signing_in_leads_back_to_the_page_that_was_asked_for_and_nowhere_else(api: Api) -> None:
    await set_password(api, "rita", "reviewer")
    client = await api.client()
    asked = await client.get("/console/held?condition=age%3E1h")
    assert path_of(asked) == "/console/sign-in?next=%2Fconsole%2Fheld%3Fcondition%3Dage%253E1h"
    form = {"name": "rita", "password": PASSWORD}
    for wanted, reached in (
        ("/console/held?condition=age%3E1h", "/console/held?condition=age%3E1h"),
        ("https://evil.example/", "/console/"),
        ("//evil.example/", "/console/"),
        ("/console/\\evil.example", "/console/"),
        ("/console//evil.example", "/console/"),
        ("/console/\r\nx: y", "/console/"),
    ):
        answer = await client.post("/console/sign-in", data={**form, "next": wanted})
        assert path_of(answer) == reached, wanted


async def test_a_key_opens_no_page_and_a_session_no_route_of_the_api(api: Api) -> None:
    client = await signed_in(api, "rita", "reviewer")
    assert (await client.get("/v1/quarantine")).status_code == 401
    key = await api.caller("olga", "operator", kind="person")
    assert path_of(await key.get("/console/quarantine")).startswith("/console/sign-in")


async def test_the_console_is_there_until_it_is_switched_off(system: System) -> None:
    async with Api(system, await system.httpd(console={"enabled": False})) as api:
        client = await api.client()
        assert [(await client.get(path)).status_code for path in ("/", "/console/", "/console/sign-in")] == [401] * 3
    async with Api(system, await system.httpd("second")) as api:
        client = await api.client()
        assert path_of(await client.get("/")) == "/console/"


async def test_a_session_counts_as_used(api: Api) -> None:
    client = await signed_in(api, "rita", "reviewer")
    await api.system.rows("UPDATE web_sessions SET seen = now() - interval '50 min'")
    await client.get("/console/account")

    async def used() -> bool:
        return bool(await api.system.value("SELECT bool_or(seen > now() - interval '5 min') FROM web_sessions"))

    await eventually(used, "the session was seen")


@pytest.mark.parametrize("path", ["/console/held/99999999999999999999", "/console/held/0x1", "/console/nothing"])
async def test_what_is_not_there_is_a_page_that_says_so(api: Api, path: str) -> None:
    client = await signed_in(api, "rita", "reviewer")
    answer = await client.get(path)
    assert (answer.status_code, "text/html" in answer.headers["content-type"]) == (404, True)
