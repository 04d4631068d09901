"""listed — what each list of the console has: its columns, the form that adds, and what can be done to a row

Owns: suspends, suppressions, schedules, dead letters, webhooks, keys, people, audit.
Guarantees: pages decide nothing: every change is a verb of operate/, under whose audit it is.
Raises: Refused and its kinds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, override

from httpd.routes.acting import span
from operate import deadletters, keys, principals, sign_in
from operate.errors import Refused
from operate.queue import history
from operate.selection import in_words
from operate.settings import schedule, suppress, suspend
from operate.shapes.settings import ApiKeyMade, ApiKeyRevoked, WebhookSecret
from operate.webhooks import endpoints
from shared.config.queued.pacing import FIELDS
from shared.config.queued.webhooks import KINDS
from shared.masking import show
from shared.whole_number import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from httpd.console.forms import Form
    from httpd.files import Files
    from operate.queue.act import By
    from shared.postgres import database

PAGE: Final = 100
_WHOLE: Final = 1000  # lines of a page of what is short as a rule; 20,000 keys on one took three seconds
_LINK: Final = timedelta(days=1)
_OPERATORS: Final = "an operator"


class Place(NamedTuple):
    """What a list works with. url: where the console is, as this browser reaches it."""

    connection: database.Connection
    files: Files
    url: str


class Done(NamedTuple):
    """What was done. audit: its audit row, where it has one. secret: shown now and never again."""

    said: str
    audit: int | None = None
    secret: str = ""


class Asks(NamedTuple):
    """A field of the form that adds."""

    name: str
    label: str
    required: bool = False


class Row(NamedTuple):
    """A line. acts: those of the list that can be done to it."""

    key: str
    cells: Sequence[Any]
    acts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class List:
    """One list. see, change: the scopes that look and change. about: where else this is set."""

    name: str
    title: str
    columns: Sequence[str]
    about: str
    see: str = "read"
    change: str = "operate"
    acts: Mapping[str, str] = field(default_factory=dict)
    fields: Sequence[Asks] = ()

    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """Its lines after this place, and where the next page begins."""
        raise NotImplementedError

    async def add(self, place: Place, by: By, form: Form) -> Done:
        """Add what the form says."""
        raise NotImplementedError

    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """Do this to a row."""
        raise NotImplementedError


class Suspends(List):
    """Mail that must wait."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await suspend.active(place.connection)
        page, more = _page(rows, lambda each: str(each.id), after)
        return [
            Row(str(each.id), (in_words(each.selection), each.reason, each.who, each.made, each.expires), ("end",))
            for each in page
        ], more

    @override
    async def add(self, place: Place, by: By, form: Form) -> Done:
        """As List."""
        given = {name: form.one(name).replace(",", " ").split() for name in FIELDS}
        selected = suspend.selection(place.files.folder, given, everything=False)
        reason, wait = _needed(form, "reason"), form.one("for").strip()
        seconds = span(wait, "for").total_seconds() if wait else None
        made = await suspend.add(place.connection, by, selected, reason=reason, who=None, seconds=seconds)
        return Done(f"{in_words(selected)} is suspended.", _audit(made))

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        done = await suspend.remove(place.connection, by, [_number(key)])
        return Done("The suspend is ended; its mail is due now.", _audit(done))


class Suppressions(List):
    """Addresses and domains that get no mail."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await suppress.portion(place.connection, noted=False, after=after, limit=PAGE + 1)
        return [
            Row(each.target, (each.target, each.reason, each.source, each.since, each.expires), ("end",))
            for each in rows[:PAGE]
        ], rows[PAGE - 1].target if len(rows) > PAGE else ""

    @override
    async def add(self, place: Place, by: By, form: Form) -> Done:
        """As List."""
        words = _needed(form, "targets").replace(",", " ").split()
        targets = [suppress.target(word, "addresses") for word in words]
        keep = form.one("for").strip()
        made = await suppress.add(
            place.connection, by, targets, reason=_needed(form, "reason"), keep=span(keep, "for") if keep else None
        )
        return Done(f"{', '.join(targets[:5])} gets no more mail.", _audit(made))

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        done = await suppress.remove(place.connection, by, key)
        return Done(f"{key} gets mail again.", _audit(done))


class Schedules(List):
    """Recurring mail."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await schedule.listed(place.connection)
        page, more = _page(rows, lambda each: each.id, after)
        return [
            Row(
                each.id,
                (
                    each.id,
                    f"{each.cron} {each.timezone}",
                    each.sender or "<>",
                    ", ".join(each.recipients),
                    each.next_at,
                    each.last_at,
                    "" if each.enabled else each.error or "disabled",
                ),
                ("disable" if each.enabled else "enable", "remove"),
            )
            for each in page
        ], more

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        verbs = {"enable": schedule.enable, "disable": schedule.disable, "remove": schedule.remove}
        done = await verbs[act](place.connection, by, key)
        return Done(f"{key}: {act}d.", _audit(done))


class DeadLetters(List):
    """Mail that finished without success."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await deadletters.listed(place.connection, limit=PAGE + 1, before=_before(after))
        last = rows[PAGE - 1] if len(rows) > PAGE else None
        return [
            Row(
                str(each.id),
                (
                    Link(each.recipient, f"/console/queue/{each.id}"),
                    each.sender or "<>",
                    each.result,
                    each.finished,
                    each.last_error or "",
                ),
                ("requeue",) if each.body and not each.requeued else (),
            )
            for each in rows[:PAGE]
        ], f"{last.finished.astimezone(UTC).isoformat()}/{last.id}" if last else ""

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        plan = await deadletters.plan(place.connection, [str(_number(key))], deadletters.Wanted())
        done = await deadletters.requeue(place.connection, plan, deadletters.Done())
        return Done(f"{done.requeued} sent once more." if done.requeued else "Its body is not kept any more.")


class Webhooks(List):
    """HTTP endpoints that get events."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await endpoints.listed(place.connection)
        page, more = _page(rows, lambda each: each.name, after)
        return [
            Row(
                each.name,
                (
                    each.name,
                    each.url,
                    ", ".join(each.events),
                    each.condition,
                    each.state,
                    each.sent,
                    each.last_sent,
                    each.reason or each.error or "",
                    each.who,
                ),
                ("disable",) if each.state == "enabled" else ("enable",),
            )
            for each in page
        ], more

    @override
    async def add(self, place: Place, by: By, form: Form) -> Done:
        """As List."""
        events = form.one("events").replace(",", " ").split()
        wanted = endpoints.Wanted(
            _needed(form, "name"), _needed(form, "url"), events or list(KINDS), form.one("condition").strip()
        )
        if unknown := [each for each in events if each not in KINDS]:
            raise Refused(f"events: {show(unknown[0])}; allowed: {', '.join(KINDS)}")
        made = await endpoints.add(place.connection, by, wanted)
        assert isinstance(made, WebhookSecret)  # noqa: S101 - a preview comes only with dry_run
        return Done(
            f"{wanted.name} is added, and gets what happens from now on. The secret of its signatures:",
            made.audit,
            made.secret or "",
        )

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        if act == "enable":
            done = await endpoints.enable(place.connection, by, key)
        else:
            why = by.reason or f"disabled by {_OPERATORS}"
            done = await endpoints.disable(place.connection, replace(by, reason=why), key)
        return Done(f"{key}: {act}d.", _audit(done))


class Keys(List):
    """API keys."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await keys.listed(place.connection, None)
        page, more = _page(rows, lambda each: each.prefix, after)
        return [
            Row(
                each.prefix,
                (
                    each.prefix,
                    each.principal,
                    ", ".join(each.scopes),
                    each.state,
                    each.label or "",
                    each.made,
                    each.maker,
                    each.expires,
                    each.used,
                ),
                ("revoke",) if each.state == "valid" else (),
            )
            for each in page
        ], more

    @override
    async def add(self, place: Place, by: By, form: Form) -> Done:
        """As List."""
        wait = form.one("for").strip()
        expires = datetime.now(UTC) + span(wait, "for") if wait else None
        scopes = form.one("scopes").replace(",", " ").split() or None
        if unknown := [each for each in scopes or () if each not in keys.SCOPES]:
            raise Refused(f"scopes: {show(unknown[0])}; allowed: {', '.join(keys.SCOPES)}")
        made = await keys.add(
            place.connection, by, _needed(form, "principal"), scopes=scopes, expires=expires, label=by.reason
        )
        assert isinstance(made, ApiKeyMade)  # noqa: S101 - no preview was asked for
        return Done(f"A key of {made.principal}, for {', '.join(made.scopes)}:", made.audit, secret=made.key)

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        done = await keys.revoke(place.connection, by, key)
        assert isinstance(done, ApiKeyRevoked)  # noqa: S101 - no preview was asked for
        return Done(f"{done.prefix} of {done.principal} is revoked.", done.audit)


class People(List):
    """Principals: people and applications."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        rows = await principals.listed(place.connection)
        page, more = _page(rows, lambda each: each.name, after)
        return [
            Row(
                each.name,
                (
                    each.name,
                    each.kind,
                    ", ".join(each.roles),
                    "all that let it" if each.reviews is None else ", ".join(each.reviews),
                    "disabled" if each.disabled else "",
                ),
                (
                    *(("link",) if each.kind == "person" and not each.disabled else ()),
                    "enable" if each.disabled else "disable",
                ),
            )
            for each in page
        ], more

    @override
    async def add(self, place: Place, by: By, form: Form) -> Done:
        """As List."""
        name, roles = _needed(form, "name"), _needed(form, "roles").replace(",", " ").split()
        reviews = form.one("reviews").replace(",", " ").split() or None
        name = await principals.add_person(place.connection, by, name, roles, reviews)
        made = await sign_in.link(place.connection, name, _LINK, place.url)
        return Done(f"{name} is added, and chooses a password here, once, within a day:", secret=made.url)

    @override
    async def act(self, place: Place, by: By, act: str, key: str) -> Done:
        """As List."""
        if act == "link":
            made = await sign_in.link(place.connection, key, _LINK, place.url)
            return Done(f"{key} chooses a password here, once, within a day:", secret=made.url)
        await principals.disable(place.connection, by, key, disabled=act == "disable")
        return Done(f"{key}: {act}d.")


class Audit(List):
    """Who did what."""

    @override
    async def rows(self, place: Place, after: str) -> tuple[list[Row], str]:
        """As List."""
        before = _number(after) if after else None
        rows = await history.audit(place.connection, None, PAGE + 1, before=before)
        return [
            Row(
                str(each.id),
                (
                    Link(str(each.id), f"/console/decided/{each.id}?from=audit"),
                    each.ts,
                    each.who,
                    each.verb,
                    each.condition,
                    f"{each.done} of {each.wanted}",
                    each.reason or "",
                    each.undone,
                ),
            )
            for each in rows[:PAGE]
        ], str(rows[PAGE - 1].id) if len(rows) > PAGE else ""


class Link(NamedTuple):
    """A cell that leads to a page."""

    text: str
    path: str


_REASON: Final = Asks("reason", "Reason", required=True)
LISTS: Final[tuple[List, ...]] = (
    Suspends(
        "suspends",
        "Suspends",
        ("Mail", "Reason", "By", "Since", "Until"),
        "Suspended mail waits and is not tried. Those of queued.yaml (suspends) are set there, and not listed here.",
        acts={"end": "End"},
        fields=(
            Asks("destination", "To these domains"),
            Asks("sender", "From these domains"),
            Asks("transport", "Over these transports"),
            Asks("tenant", "Of these tenants"),
            Asks("jobid", "With these job ids"),
            _REASON,
            Asks("for", "For how long, such as 2h (until it is ended)"),
        ),
    ),
    Suppressions(
        "suppressions",
        "Suppressions",
        ("Address or domain", "Reason", "Source", "Since", "Until"),
        "These get no mail (suppression.atdelivery of queued.yaml, suppression.action of smtpd.yaml).",
        acts={"end": "End"},
        fields=(
            Asks("targets", "Addresses or domains", required=True),
            _REASON,
            Asks("for", "For how long, such as 30d (for ever)"),
        ),
    ),
    Schedules(
        "schedules",
        "Schedules",
        ("Name", "When", "Sender", "Recipients", "Next", "Last", "Trouble"),
        "Recurring mail; `pillarbox schedule add` adds it with its message.",
        acts={"enable": "Enable", "disable": "Disable", "remove": "Remove"},
    ),
    DeadLetters(
        "deadletters",
        "Dead letters",
        ("Recipient", "Sender", "Result", "Finished", "Last error"),
        "Mail that finished without success, the latest first.",
        acts={"requeue": "Send once more"},
    ),
    Webhooks(
        "webhooks",
        "Webhooks",
        ("Name", "URL", "Events", "Condition", "State", "Sent", "Last", "Trouble", "By"),
        "HTTP endpoints that get events. Those of queued.yaml (webhooks) are set there.",
        see="operate",
        acts={"enable": "Enable", "disable": "Disable"},
        fields=(
            Asks("name", "Name", required=True),
            Asks("url", "URL, https://…", required=True),
            Asks("events", f"Events (all): {', '.join(KINDS)}"),
            Asks("condition", "Condition (all recipients)"),
        ),
    ),
    Keys(
        "keys",
        "API keys",
        ("Key", "Of", "Scopes", "State", "Label", "Made", "By", "Until", "Used"),
        "Keys for the API over HTTP.",
        see="administer",
        change="administer",
        acts={"revoke": "Revoke"},
        fields=(
            Asks("principal", "Principal", required=True),
            Asks("scopes", "Scopes (all that its roles have a use for)"),
            Asks("for", "For how long, such as 90d (until it is revoked)"),
            Asks("reason", "Label, what it is for"),
        ),
    ),
    People(
        "people",
        "People and applications",
        ("Name", "Kind", "Roles", "Reviews", "State"),
        "Principals; `pillarbox principal` has their other settings.",
        see="administer",
        change="administer",
        acts={"link": "Sign-in link", "enable": "Enable", "disable": "Disable"},
        fields=(
            Asks("name", "Name", required=True),
            Asks("roles", "Roles: viewer, reviewer, operator, admin", required=True),
            Asks("reviews", "Quarantines to review (all that let this person)"),
        ),
    ),
    Audit(
        "audit",
        "Audit",
        ("Number", "When", "By", "Verb", "Of", "Changed", "Reason", "Undone"),
        "What changed mail or settings, the latest first.",
        see="review",
    ),
)


def _page[R](rows: Sequence[R], key: Callable[[R], str], after: str) -> tuple[Sequence[R], str]:
    """The lines behind the one with this key, or the first where it is gone; and where the next page begins."""
    begin = next((place for place, each in enumerate(rows, 1) if key(each) == after), 0)
    page = rows[begin : begin + _WHOLE]
    return page, key(page[-1]) if len(rows) > begin + _WHOLE else ""


def _audit(changed: Any) -> int | None:
    """The audit row of a change that was made."""
    found: int | None = getattr(changed, "audit", None)
    return found


def _needed(form: Form, name: str) -> str:
    """The value of a field that must not be empty."""
    text = form.one(name).strip()
    if not text:
        raise Refused(f"{name} is missing")
    return text


def _number(text: str) -> int:
    if (found := whole_number(text)) is None:
        raise Refused(f"{show(text[:30])} is not a number of this list")
    return found


def _before(after: str) -> tuple[datetime, int] | None:
    """The place in the list of dead letters."""
    if not after:
        return None
    finished, _, id_ = after.partition("/")
    try:
        at = datetime.fromisoformat(finished)
    except ValueError:
        raise Refused("after: this is not the next page of a list") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC), _number(id_)
