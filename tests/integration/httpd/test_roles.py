"""test_roles — every route that looks or acts asks for its scope and role, and PostgreSQL asks again

Owns: ROUTES, each route that operates, with a request that it takes; the proof that the description has them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from httpd.app import described
from tests.fixtures.daemons.api import Api
from tests.fixtures.database.operating import write_config
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

READ: Final = ("viewer", "reviewer", "operator", "admin")
REVIEW: Final = ("reviewer", "operator", "admin")
OPERATE: Final = ("operator", "admin")
ROLES: Final = ("viewer", "reviewer", "operator", "admin", "sender")
#: The tags of the routes of this table.
OURS: Final = frozenset(
    [
        "queue",
        "audit",
        "quarantine",
        "suspends",
        "suppressions",
        "deadletters",
        "partitions",
        "doctor",
        "schedules",
        "webhooks",
    ]
)


class Route(NamedTuple):
    """A route, who may, and a body that it takes."""

    method: str
    path: str
    roles: tuple[str, ...]
    body: dict[str, Any] | None = None
    query: str = ""

    @property
    def absent(self) -> str:
        """Its path, of something that does not exist."""
        return self.path.replace("{id}", "4711").replace("{name}", "gone").replace("{target}", "bob@example.com")


ALL: Final[dict[str, Any]] = {"all": True, "dry_run": True}
MAIL: Final = {"from": "a@example.com", "to": ["b@example.com"], "message": "Subject: x\r\n\r\nhello\r\n"}
PLAIN: Final = ("hold", "release", "copy", "retry", "bounce", "delete")
ROUTES: Final = [
    Route("GET", "/v1/queue", READ),
    Route("GET", "/v1/queue/count", READ),
    Route("GET", "/v1/queue/groups", READ, query="?by=recipientdomain"),
    Route("GET", "/v1/queue/shape", READ),
    Route("GET", "/v1/queue/{id}", READ),
    Route("GET", "/v1/queue/{id}/trace", READ),
    *(Route("POST", f"/v1/queue/{verb}", OPERATE, ALL) for verb in PLAIN),
    Route("POST", "/v1/queue/delay", OPERATE, {**ALL, "for": "1h"}),
    Route("POST", "/v1/queue/priority", OPERATE, {**ALL, "priority": 1}),
    Route("POST", "/v1/queue/move", OPERATE, {**ALL, "transport": "default"}),
    Route("GET", "/v1/audit", READ),
    Route("GET", "/v1/audit/{id}", READ),
    Route("POST", "/v1/audit/{id}/undo", OPERATE, {"dry_run": True}),
    Route("GET", "/v1/quarantine", REVIEW),
    Route("GET", "/v1/quarantine/mail", REVIEW),
    Route("GET", "/v1/quarantine/mail/{id}", REVIEW),
    Route("GET", "/v1/quarantine/mail/{id}/raw", REVIEW),
    Route("POST", "/v1/quarantine/release", REVIEW, ALL),
    Route("POST", "/v1/quarantine/delete", REVIEW, ALL),
    Route("POST", "/v1/quarantine/rescan", REVIEW, {**ALL, "release": True}),
    Route("POST", "/v1/quarantine/digest", REVIEW, {"dry_run": True}),
    Route("GET", "/v1/suspends", READ),
    Route("POST", "/v1/suspends", OPERATE, {"destination": ["example.com"], "reason": "they ask"}),
    Route("DELETE", "/v1/suspends", OPERATE),
    Route("DELETE", "/v1/suspends/{id}", OPERATE),
    Route("GET", "/v1/suppressions", READ),
    Route("POST", "/v1/suppressions", OPERATE, {"targets": ["bob@example.com"]}),
    Route("DELETE", "/v1/suppressions/{target}", OPERATE),
    Route("GET", "/v1/deadletters", READ),
    Route("GET", "/v1/deadletters/count", READ),
    Route("GET", "/v1/deadletters/{id}", READ),
    Route("POST", "/v1/deadletters/requeue", OPERATE, {"limit": 1}),
    Route("GET", "/v1/partitions", READ),
    Route("GET", "/v1/partitions/plan", READ),
    Route("GET", "/v1/partitions/balance", READ),
    Route("GET", "/v1/schedules", READ),
    Route("POST", "/v1/schedules", OPERATE, {"id": "s", "every": "0 9 * * mon", **MAIL}),
    Route("POST", "/v1/schedules/{id}/enable", OPERATE),
    Route("POST", "/v1/schedules/{id}/disable", OPERATE),
    Route("DELETE", "/v1/schedules/{id}", OPERATE),
    Route("GET", "/v1/webhooks", OPERATE),
    Route("POST", "/v1/webhooks", OPERATE, {"name": "app", "url": "https://app.example.com/hook"}),
    Route("POST", "/v1/webhooks/{name}/test", OPERATE),
    Route("POST", "/v1/webhooks/{name}/replay", OPERATE, {"since": "2026-01-02T03:04Z"}),
    Route("POST", "/v1/webhooks/{name}/enable", OPERATE, {}),
    Route("POST", "/v1/webhooks/{name}/disable", OPERATE, {}),
    Route("POST", "/v1/webhooks/{name}/rotate", OPERATE),
    Route("DELETE", "/v1/webhooks/{name}", OPERATE),
    Route("GET", "/v1/doctor", OPERATE),
]  # fmt: skip
ACTING: Final = [route for route in ROUTES if route.method != "GET"]
#: Those that find nothing to change in an empty database, so that PostgreSQL is not asked.
OF_NOTHING: Final = [
    route
    for route in ACTING
    if ("{id}" in route.path and "suspends" not in route.path and "schedules" not in route.path)
    or "deadletters" in route.path
    or "rescan" in route.path
    or "{name}" in route.path
]


async def ask(client: httpx.AsyncClient, route: Route, **more: Any) -> httpx.Response:
    """Ask a route about what is not there, or with dry_run."""
    body = None if route.body is None else {**route.body, **(more if "dry_run" in route.body else {})}
    return await client.request(route.method, route.absent + route.query, json=body)


async def until_refused(client: httpx.AsyncClient) -> None:
    """Wait until its key is not valid any more."""

    async def shut() -> bool:
        return (await ask(client, ROUTES[0])).status_code == 401

    await eventually(shut, "its key is refused")


def test_every_route_is_described_with_its_answers_and_is_in_the_table() -> None:
    document = described().openapi()
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if OURS.intersection(operation["tags"]):
                found[method.upper(), path] = operation
    assert set(found) == {(route.method, route.path) for route in ROUTES}
    for key, operation in found.items():
        assert operation["summary"], key
        assert operation["description"], key
        assert operation["security"], key
        assert {"200", "401", "403", "404", "409", "422", "429", "503"} <= set(operation["responses"]), key
        assert operation["responses"]["200"]["content"], key
    names = [operation["operationId"] for operation in found.values()]
    assert len(set(names)) == len(names)


async def test_each_route_is_open_to_its_roles_and_to_nobody_else(system: System, factory: Factory) -> None:
    factory.row()
    write_config(system.folder, system.uri)
    async with Api(system, await system.httpd(rates={"failures": 0})) as api:
        kinds = {"sender": "application"}
        clients = {role: await api.caller(role, role, kind=kinds.get(role, "person")) for role in ROLES}
        nobody = await api.client()
        for route in ROUTES:
            assert (await ask(nobody, route)).status_code == 401, route
            for role, client in clients.items():
                answer = await ask(client, route)
                allowed = answer.status_code in {200, 404, 409}
                assert allowed == (role in route.roles), (route, role, answer.text)
                assert allowed or answer.status_code == 403, (route, role, answer.text)
        await system.rows("UPDATE principals SET disabled = true")
        for client in clients.values():
            await until_refused(client)


async def test_a_key_does_no_more_than_its_scopes(api: Api) -> None:
    reading = await api.caller("olga", "operator", kind="person", scopes=["read"])
    for route in ROUTES:
        assert ((await ask(reading, route)).status_code == 403) == (route.roles != READ), route


@pytest.mark.parametrize("scope", ["operate", "review"])
async def test_postgresql_refuses_what_httpd_would_let_pass(api: Api, factory: Factory, scope: str) -> None:
    """The role is taken away while httpd still remembers the key: nothing is changed any more."""
    factory.row(status="HOLD")
    before = factory.queue()
    routes = [route for route in ACTING if (route.roles == REVIEW) == (scope == "review") and route not in OF_NOTHING]
    for number, route in enumerate(routes):
        client = await api.caller(f"olga{number}", "operator", kind="person")
        assert (await ask(client, route)).status_code in {200, 404}
        await api.system.rows(f"UPDATE principals SET roles = '{{viewer}}' WHERE name = 'olga{number}'")  # noqa: S608
        refused = await ask(client, route, dry_run=False)
        assert refused.status_code == 403, (route, refused.text)
    assert factory.queue() == before
