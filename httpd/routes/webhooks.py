"""webhooks — endpoints that get events: added, listed, tried, changed, removed

Guarantees: a secret is made here and answered once. Addresses that only our own networks reach, and secrets in files of
    workers, are for the command line alone, so that a key for the API opens neither.
See: operate/webhooks/, which does it, for the command line too; docs/how-to/send/webhooks.md.
"""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from pydantic import Field

from httpd.access.caller import Caller
from httpd.access.needs import needs
from httpd.routes.acting import Body, DryRun, Explained, Reason, Trying, looking
from operate.errors import Refused
from operate.queue.act import By
from operate.shapes.settings import SettingsPreview, Webhook, WebhookName, WebhookReplayed, WebhookSecret, WebhookTested
from operate.webhooks import endpoints, probe
from operate.webhooks.endpoints import Wanted
from shared.config.fields import matching
from shared.config.queued.webhooks import KINDS, NAME_ALLOWED, NAME_PATTERN
from shared.masking import show

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"])

Operator = Annotated[Caller, needs("operate")]
Name = Annotated[str, matching(NAME_PATTERN, NAME_ALLOWED), PathParameter(description="Its name.")]


class Adding(Explained):
    """An endpoint."""

    name: str = Field(max_length=255, description="Its name.")
    url: str = Field(max_length=2000, description="Where requests go: https://…")
    events: list[str] = Field(
        [], max_length=100, description=f"The kinds of events that it gets: {', '.join(KINDS)}; none: all."
    )
    condition: str = Field("", max_length=10_000, description="Which recipients; empty: all.")
    batch: int = Field(1, description="The most events in one request.")


class Enabling(Explained):
    """From where on."""

    skip: bool = Field(False, description="Forget what has happened until now.")


class Disabling(Trying):
    """Why."""

    reason: str = Field("disabled by an operator", min_length=1, max_length=1000, description="Why; a list shows it.")


class Replaying(Body):
    """Which span of time."""

    since: str = Field(max_length=100, description="From this time on, with its offset: 2026-11-20T08:30Z.")
    until: str | None = Field(None, max_length=100, description="Until this time; null: now.")


@router.get("", name="list")
async def listed(request: Request, caller: Operator) -> list[Webhook]:
    """Every endpoint, without its secrets, and how far each has come."""
    async with looking(request, caller) as connection:
        rows = await endpoints.listed(connection)
    return [Webhook.model_validate({key: getattr(row, key) for key in Webhook.model_fields}) for row in rows]


@router.post("")
async def add(request: Request, caller: Operator, body: Adding) -> WebhookSecret | SettingsPreview:
    """Add an endpoint, which gets what happens from now on. Its secret is not shown again."""
    wanted = Wanted(body.name, body.url, body.events or KINDS, body.condition, batch=body.batch)
    async with looking(request, caller) as connection:
        return await endpoints.add(connection, body.by(), wanted, dry_run=body.dry_run)


@router.post("/{name}/test")
async def test(request: Request, name: Name, caller: Operator) -> WebhookTested:
    """Send the event `test` now."""
    limit = (await request.app.state.service.files.queued()).webhooks.timeout
    async with looking(request, caller) as connection:
        probed = await probe.probe(connection, name, limit)
    return WebhookTested(name=name, id=probed.id, error=probed.error)


@router.post("/{name}/replay")
async def replay(request: Request, name: Name, caller: Operator, body: Replaying) -> WebhookReplayed:
    """Send the events of a span of time once more, with the ids they had."""
    since, until = _time(body.since, "since"), None if body.until is None else _time(body.until, "until")
    async with looking(request, caller) as connection:
        end = await endpoints.replay(connection, name, since, until)
    return WebhookReplayed(name=name, since=since, until=end)


@router.post("/{name}/enable")
async def enable(request: Request, name: Name, caller: Operator, body: Enabling) -> WebhookName | SettingsPreview:
    """Let an endpoint have events again, where it was; it is tried at once."""
    async with looking(request, caller) as connection:
        return await endpoints.enable(connection, body.by(), name, skip=body.skip, dry_run=body.dry_run)


@router.post("/{name}/disable")
async def disable(request: Request, name: Name, caller: Operator, body: Disabling) -> WebhookName | SettingsPreview:
    """Let an endpoint have no events until it is enabled; its position stays."""
    async with looking(request, caller) as connection:
        return await endpoints.disable(connection, By(reason=body.reason), name, dry_run=body.dry_run)


@router.post("/{name}/rotate")
async def rotate(
    request: Request,
    name: Name,
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> WebhookSecret | SettingsPreview:
    """Make a new secret, which signs beside the last one until the next rotation. It is not shown again."""
    async with looking(request, caller) as connection:
        return await endpoints.rotate(connection, By(reason=reason), name, dry_run=dry_run)


@router.delete("/{name}")
async def remove(
    request: Request,
    name: Name,
    caller: Operator,
    dry_run: DryRun = False,  # noqa: FBT002 - a query
    reason: Reason = None,
) -> WebhookName | SettingsPreview:
    """Forget an endpoint."""
    async with looking(request, caller) as connection:
        return await endpoints.remove(connection, By(reason=reason), name, dry_run=dry_run)


def _time(text: str, where: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(f"{where}: {show(text)} is not a time; allowed: 2026-11-20T08:30Z") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
