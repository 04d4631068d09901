"""partitions — the leaves of the queue, to look at

See: operate/partitions/run.py; docs/how-to/repartition.md.
"""

from typing import Annotated

from fastapi import APIRouter, Request

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import looking
from operate.partitions import look
from operate.shapes.checks import Leaves

router = APIRouter(prefix="/v1/partitions", tags=["partitions"])


@router.get("")
async def show(request: Request, caller: Annotated[Caller, needs("read")]) -> Leaves:
    """The leaves with their ids and recipients, what is wrong with them, and whether they are those of smtpd.yaml."""
    settings = await request.app.state.service.files.smtpd()
    async with looking(request, caller) as connection:
        return await look.leaves(connection, settings.environment.database.partitions.leaves)
