"""test_hostile_values — every text that a route which operates takes, in turn with values that break parsers

Owns: HOSTILE; the places for text in the API's own description. Routes that send mail: test_send_hostile.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pytest

from tests.fixtures.daemons.api import Api
from tests.fixtures.database.operating import write_config
from tests.integration.httpd.test_roles import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

#: NUL; a character that no domain has; digits that int() refuses; a span, and times, that no calendar has; a condition
#: that does not end; an address without its parts.
HOSTILE: Final = (
    "\0",
    "\u202e",
    "9" * 5000,
    "9" * 15 + "d",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "((",
    "@",
)


def resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """A schema, or the one that it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return document["components"]["schemas"][name] if name else schema


def filled(schema: dict[str, Any], document: dict[str, Any], value: str) -> Any:
    """This text as the schema takes it, alone or in a list; None where it takes no text."""
    schema = resolved(schema, document)
    if schema.get("type") == "string":
        return value
    if schema.get("type") == "array" and filled(schema["items"], document, value) is not None:
        return [value]
    choices = [filled(each, document, value) for each in schema.get("anyOf", ())]
    return next((each for each in choices if each is not None), None)


def requests(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """Method, path and body of every request that has one hostile value."""
    for route in ROUTES:
        operation = document["paths"][route.path][route.method.lower()]
        begun = f"{route.absent}{route.query}"
        body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        for value in HOSTILE:
            for each in operation.get("parameters", ()):
                name, written = each["name"], quote(value, safe="")
                if each["in"] == "path":
                    yield route.method, route.path.replace(f"{{{name}}}", written) + route.query, route.body
                elif filled(each["schema"], document, value) is not None:
                    yield route.method, f"{begun}{'&' if route.query else '?'}{name}={written}", route.body
            for name, schema in resolved(body, document).get("properties", {}).items():
                given = filled(schema, document, value)
                if given is not None:
                    yield route.method, begun, {**(route.body or {}), name: given}


@pytest.fixture
async def operator(system: System, factory: Factory) -> Any:
    """A client that may do everything, with mail in the queue and on hold."""
    factory.row()
    factory.row(status="HOLD")
    write_config(system.folder, system.uri)
    async with Api(system, await system.httpd(rates={"failures": 0})) as api:
        yield await api.caller("olga", "admin", "sender", kind="person")


async def test_no_value_of_a_text_is_a_fault(operator: Any) -> None:
    document = (await operator.get("/v1/openapi.json")).json()
    asked = list(requests(document))
    assert len({(method, path.partition("?")[0]) for method, path, _ in asked}) > len(ROUTES) / 2
    faults = []
    for method, path, body in asked:
        answer = await operator.request(method, path, json=body)
        # The driver's own words name neither the value nor what is allowed.
        if answer.status_code >= 500 or "PostgreSQL text fields" in answer.text:
            faults.append((method, path[:80], str(body)[:200], answer.text[:200]))
    assert faults == []
