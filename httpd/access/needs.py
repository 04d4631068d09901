"""needs — what a route asks of its caller

Owns: the dependency by which FastAPI gives a route its caller, whom httpd/gate.py has found; refused where it may not.
See: operate/keys.py for the scopes.
"""

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from httpd.access.caller import Caller
from httpd.problems import Problem
from operate.keys import SCOPES
from shared.masking import show

_BEARER = HTTPBearer(
    scheme_name="ApiKey",
    bearerFormat="pb_…",
    description="Of `pillarbox key add`; or a person's token of the provider that `oidc` names",
    auto_error=False,
)


def needs(*scopes: str) -> Any:
    """As a dependency, the caller, who may do at least one of these."""

    async def caller_of(
        request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
    ) -> Caller:
        return admitted(request.state.caller, *scopes)

    return Depends(caller_of)


def admitted(caller: Caller, *scopes: str) -> Caller:
    """This caller, if it may do at least one of these; else Problem 403."""
    if any(caller.may(scope) for scope in scopes):
        return caller
    if not caller.scopes.intersection(scopes):
        raise Problem(HTTPStatus.FORBIDDEN, f"the key lacks the scope {' or '.join(scopes)}")
    roles = sorted({role for scope in scopes for role in SCOPES[scope]})
    raise Problem(HTTPStatus.FORBIDDEN, f"{show(caller.principal)} may not do this; allowed: principals with the role {' or '.join(roles)}")  # fmt: skip  # noqa: E501
