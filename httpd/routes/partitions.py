"""partitions — the leaves of the queue, to look at: as they are, as smtpd.yaml wants them, and evenly filled

Guarantees: changes nothing. Leaves are made by command, as their owner.
See: operate/partitions/run.py; docs/how-to/operate/repartition.md.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import looking
from operate.partitions import look
from operate.shapes.checks import Balance, Leaves, RepartitionPlan

router = APIRouter(prefix="/v1/partitions", tags=["partitions"])


@router.get("")
async def show(request: Request, caller: Annotated[Caller, needs("read")]) -> Leaves:
    """The leaves with their ids and recipients, what is wrong with them, and whether they are those of smtpd.yaml."""
    settings = await request.app.state.service.files.smtpd()
    async with looking(request, caller) as connection:
        return await look.leaves(connection, settings.environment.database.partitions.leaves)


@router.get("/plan")
async def plan(request: Request, caller: Annotated[Caller, needs("read")]) -> RepartitionPlan:
    """The steps that would make the leaves those of smtpd.yaml."""
    settings = await request.app.state.service.files.smtpd()
    async with looking(request, caller) as connection:
        return await look.plan(connection, settings.environment.database.partitions.leaves)


@router.get("/balance")
async def balance(
    request: Request,
    caller: Annotated[Caller, needs("read")],
    leaves: Annotated[
        int | None, Query(ge=1, le=1000, description="How many leaves; without: as many as there are.")
    ] = None,
) -> Balance:
    """Leaves that would share the recipients waiting now evenly."""
    async with looking(request, caller) as connection:
        return await look.proposal(connection, leaves)
