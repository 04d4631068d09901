"""app — the application: every file of routes, the problems, and the description by OpenAPI 3.1

Owns: what is found under /v1; the order of what surrounds a request.
Guarantees: each module in httpd/routes with a `router` is part of it, in the order of names.
See: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import importlib
import pkgutil
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotation
from starlette.responses import HTMLResponse
from starlette.routing import Match

from httpd import problems, routes
from httpd.console import application
from httpd.direct import Direct
from httpd.gate import Gate
from httpd.page import page
from httpd.routes import messages
from httpd.sending.forms import Send
from shared.errors import PillarboxError
from shared.postgres import database

if TYPE_CHECKING:
    from fastapi.routing import APIRoute
    from starlette.responses import Response

    from httpd.service import Service

VERSION: Final = "1"
_ABOUT: Final = "Send mail, see what became of it, and operate the queue. Every refusal is a problem by RFC 9457."


def described() -> FastAPI:
    """The application as far as its description goes: without a database."""
    api = FastAPI(
        title="Pillarbox", version=VERSION, description=_ABOUT, openapi_url="/v1/openapi.json", docs_url=None,
        redoc_url=None, responses=problems.RESPONSES, separate_input_output_schemas=False, redirect_slashes=False,
        generate_unique_id_function=_operation, dependencies=[Depends(_without_nul)],
    )  # fmt: skip
    api.state.routes = []
    for name in sorted(each.name for each in pkgutil.iter_modules(routes.__path__)):
        module = importlib.import_module(f"httpd.routes.{name}")
        if hasattr(module, "router"):
            api.include_router(module.router)
            api.state.routes += module.router.routes
    complete_description(api)
    return api


def _operation(route: APIRoute) -> str:
    """Its name in programs that are generated from the description, such as queue_hold."""
    return f"{route.path.removeprefix('/v1').split('/')[1]}_{route.name}"


async def _without_nul(request: Request) -> None:
    """Refuse NUL in a path or query, which PostgreSQL's text cannot hold; in a body each value says what is allowed."""
    for place, values in (("path", request.path_params), ("query", request.query_params)):
        for name, value in values.items():
            if "\0" in value:
                why = f"{place}.{name}: has a NUL; allowed: other characters"
                raise problems.Problem(HTTPStatus.UNPROCESSABLE_ENTITY, why)


def made(service: Service) -> Gate:
    """The application as it is served."""
    api = described()
    api.state.service = service
    for kind in (HTTPException, PillarboxError, *database.REFUSAL, *database.OUTAGE, Exception):
        api.add_exception_handler(kind, problems.answer_error)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPStatus.METHOD_NOT_ALLOWED.value, _another_method)

    @api.get("/v1/docs", include_in_schema=False)
    async def documentation() -> HTMLResponse:
        return HTMLResponse(page(api.openapi()), headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"})  # fmt: skip  # noqa: E501

    return Gate(Direct(api, messages.DIRECT), application.made(service), service)


def complete_description(api: FastAPI) -> None:
    """Put into the description what FastAPI does not know of, and leave out what misleads generators of clients."""
    generated = api.openapi

    def complete() -> dict[str, Any]:
        if api.openapi_schema is None:
            schema = generated()
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            # The routes of Send read it themselves.
            sending = Send.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(sending.pop("$defs", {}))
            components["Send"] = sending
            for name in ("HTTPValidationError", "ValidationError"):
                components.pop(name, None)
            for form in components.values():
                for field in form.get("properties", {}).values():
                    if field.get("default", ...) is None:  # says only that it may be missing, as `required` does
                        del field["default"]
        assert api.openapi_schema is not None  # noqa: S101 - for the type
        return api.openapi_schema

    api.openapi = complete  # type: ignore[method-assign]


async def _another_method(request: Request, error: Exception) -> Response:
    """A method that a path does not have: Allow names those of all its routes (RFC 9110 section 15.5.6)."""
    here = [each for each in request.app.state.routes if each.matches(request.scope)[0] is not Match.NONE]
    methods = sorted({method for route in here for method in route.methods})
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type
    return problems.answer(request, HTTPException(error.status_code, error.detail, {"Allow": ", ".join(methods)}))


async def _invalid(request: Request, error: Exception) -> Response:
    """A request whose values do not have the form that its route asks for."""
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type
    return problems.answer(request, problems.invalid(error.errors()))
