"""test_direct — the shorter way answers with the routes that are described, and with the same problems

Owns: proofs about httpd/direct.py.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import pytest
from fastapi.routing import APIRoute

from httpd.app import described
from httpd.direct import Direct
from httpd.problems import Problem
from httpd.routes import messages

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Message, Receive, Scope, Send


def test_each_route_of_the_shorter_way_is_the_one_that_is_described() -> None:
    described_routes = {
        (method, route.path): route
        for route in messages.router.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    paths = described().openapi()["paths"]
    for (method, path), endpoint in messages.DIRECT.items():
        route = described_routes[method, path]
        assert route.endpoint is endpoint
        assert {each.name for each in (*route.dependant.path_params, *route.dependant.query_params)} == set()
        assert method.lower() in paths[path]


async def answered(path: str, error: Exception) -> tuple[int, Any]:
    """What comes back where the route of /direct ends with this error, and the application's own answer is 418."""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def fails(request: Request) -> Response:
        raise error

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "state": {}}
    await Direct(application, {("POST", "/direct"): fails})(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


@pytest.mark.parametrize(
    ("error", "status"),
    [(Problem(HTTPStatus.CONFLICT, "used"), 409), (RuntimeError("a secret"), 500)],
)
async def test_an_error_on_the_shorter_way_is_a_problem(error: Exception, status: int) -> None:
    found, problem = await answered("/direct", error)
    assert (found, problem["status"]) == (status, status)
    assert "secret" not in json.dumps(problem)


async def test_every_other_path_is_the_applications() -> None:
    assert (await answered("/direct/", RuntimeError()))[0] == 418
