"""doctor — what is wrong with queue, workers and server, and what to do about it

Guarantees: one examination at a time, on a connection of its own: further requests wait for their turn.
See: operate/doctor/whole.py; docs/reference/doctor.md for the checks.
"""

from typing import Annotated

from fastapi import APIRouter, Request

from httpd.access.caller import Caller
from httpd.access.needs import needs
from operate.doctor.whole import diagnosis, examine
from operate.shapes.checks import Diagnosis

router = APIRouter(prefix="/v1/doctor", tags=["doctor"])


@router.get("")
async def show(request: Request, caller: Annotated[Caller, needs("operate")]) -> Diagnosis:  # noqa: ARG001 - who may
    """Every finding, the gravest first. No next hop and no name server is contacted: `pillarbox doctor` does that."""
    service = request.app.state.service
    smtpd, queued = await service.files.smtpd(), await service.files.queued()
    collect = await service.files.collect()
    async with service.examining:
        return diagnosis(await examine(smtpd, queued, collect=collect, offline=True))
