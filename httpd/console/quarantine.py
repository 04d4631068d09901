"""quarantine — the pages of held mail: the quarantines, the mail in them, one message, and decisions

Guarantees: a reviewer sees and decides about mail of quarantines that let this person, and of no others. A decision
    is made for mail that is still held, so what another reviewer decided meanwhile is shown, and stays. GET changes
    nothing. A message's own HTML is shown by httpd/console/body.py alone, and given as it is only as a file.
See: operate/quarantine/, which does it; docs/how-to/review/review-in-a-browser.md.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.responses import HTMLResponse, StreamingResponse
from starlette.routing import Route

from httpd.console import body, decided
from httpd.console.clean import clean
from httpd.console.forms import check_ids, form_of, query_of
from httpd.console.numbers import number
from httpd.console.visitor import may
from httpd.problems import Problem
from httpd.routes.acting import address
from operate.condition.words import words_of
from operate.errors import NotNow, NotThere, Refused
from operate.mime.markup import html_of, markup
from operate.quarantine import content, decide, held
from operate.quarantine.access import admit, narrowed
from operate.quarantine.rescan import Checks, check_of, one
from operate.queue import act
from operate.queue.act import By, Change
from shared.config.condition.tree import ConditionError
from shared.config.units import format_duration, format_size
from shared.postgres import database
from shared.whole_number import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.forms import Form
    from httpd.console.site import Site
    from operate.quarantine.access import Access
    from operate.queue.act import Done, Watch
    from operate.sign_in import Session

PAGE: Final = 50  # recipients
_VERBS: Final = ("release", "delete")
_RAW: Final = {**body.HEADERS, "Content-Security-Policy": "sandbox; default-src 'none'"}


class Asked(NamedTuple):
    """What a form asks for: a verb, and recipients by their numbers or by a condition, up to one number."""

    verb: str
    ids: list[int]
    condition: str
    last: str
    to: str

    def words(self) -> list[str]:
        """The condition's words."""
        if self.ids:
            return [str(each) for each in self.ids]
        words = words_of(self.condition)
        return ["(", *words, ")", f"id<={self.last}"] if self.last and words else words

    def change(self) -> Change:
        """What is done to each."""
        if self.verb == "delete":
            return decide.delete()
        return decide.release([address(each, "to") for each in self.to.replace(",", " ").split()])


class Quarantine:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [
            Route("/console/quarantine", self.quarantines),
            Route("/console/held", self.mail),
            Route("/console/held/{id:digits}", self.message),
            Route("/console/held/{id:digits}/raw", self.raw),
            Route("/console/held/{id:digits}/rescan", self.rescan, methods=["POST"]),
            Route("/console/decide", self.preview),
            Route("/console/decide", self.decide, methods=["POST"]),
            Route(
                f"{body.PREFIX}/{{session:digits}}/{{id:digits}}/{{part:digits}}/{{until:digits}}/{{seal}}", self.body
            ),
        ]

    async def quarantines(self, request: Request) -> Response:
        """Every quarantine that this person reviews: the fullest first."""
        session = await self._site.signed_in(request, "review")
        async with self._site.visitors.acting(session) as connection:
            every = await held.quarantines(connection, await self._access(connection))
        return self._site.page("review/quarantines", session, quarantines=[each for each in every if each.may])

    async def mail(self, request: Request) -> Response:
        """Held mail that fits a condition, in order of arrival."""
        session = await self._site.signed_in(request, "review")
        query = query_of(request)
        condition, after = query.one("condition"), number(query.one("after") or "0")
        values: dict[str, Any] = {"condition": condition, "after": after, "error": "", "mail": [], "more": None}
        try:
            async with self._site.visitors.acting(session) as connection:
                access = await self._access(connection)
                asking = (
                    await narrowed(connection, access, "list", words_of(condition), everything=True, closing=True)
                ).asking
                found = await held.mail(connection, asking, after=after, limit=PAGE + 1)
        except (ConditionError, Refused) as error:
            values["error"] = error.reason if isinstance(error, Refused) else str(error)
            return self._site.page("review/mail", session, status=HTTPStatus.UNPROCESSABLE_ENTITY, **values)
        values["mail"] = found[:PAGE]
        if len(found) > PAGE:
            values["more"] = urlencode({"condition": condition, "after": found[PAGE - 1].id})
        return self._site.page("review/mail", session, **values)

    async def message(self, request: Request) -> Response:
        """One held message, read safely."""
        session = await self._site.signed_in(request, "review")
        id_, part = request.path_params["id"], query_of(request).one("part")
        number(str(id_))
        try:
            async with self._site.visitors.acting(session) as connection:
                access = await self._access(connection)
                shown = await held.message(connection, access, str(id_), number(part) if part else None)
                octets = await _octets(connection, shown.message)
        except (NotThere, NotNow) as error:
            return await self._gone(session, [id_], error)
        marks = await asyncio.to_thread(markup, octets)
        shown_part = int(part) if part and int(part) in marks.html else next(iter(marks.html), None)
        links: Sequence[str] = ()
        if shown_part is not None:
            found = await asyncio.to_thread(html_of, octets, shown_part)
            cleaned = await clean(found[0]) if found else None
            links = cleaned.links if cleaned else ()
        parts = [
            {"number": at, "part": each, "hash": marks.hashes[at - 1] if at <= len(marks.hashes) else ""}
            for at, each in enumerate(shown.parts, 1)
        ]
        frame = None if shown_part is None else body.address(session, id_, shown_part)
        values: dict[str, Any] = {
            "mail": shown,
            "marks": marks,
            "parts": parts,
            "links": links,
            "frame": frame,
            "html": shown_part,
        }
        return self._site.page("review/message", session, chosen=int(part) if part else None, **values)

    async def body(self, request: Request) -> Response:
        """The HTML of a part, for a frame of a page; the address says who may see it."""
        asked = request.path_params
        if max(asked["session"], asked["id"], asked["part"]) > LARGEST:
            raise Problem(HTTPStatus.NOT_FOUND, "the page does not exist")
        session = await self._site.visitors.numbered(asked["session"])
        if session is None or not body.is_good(session, asked["id"], asked["part"], asked["until"], asked["seal"]):
            return HTMLResponse("<p>This view is over: load the page again.", HTTPStatus.FORBIDDEN, body.HEADERS)
        if not may(session, "review"):
            return HTMLResponse("<p>This is for reviewers.", HTTPStatus.FORBIDDEN, body.HEADERS)
        request.state.session = session
        async with self._site.visitors.acting(session) as connection:
            message = await content.held(connection, await self._access(connection), str(asked["id"]))
            octets = await _octets(connection, message)
        found = await asyncio.to_thread(html_of, octets, asked["part"])
        cleaned = await clean(found[0]) if found else None
        if found is None or cleaned is None:
            why = "<p>This HTML is made so that it cannot be shown safely: read its text, or load the file."
            return HTMLResponse(why, headers=body.HEADERS)
        return HTMLResponse(body.document(cleaned.html, cut=found[1]), headers=body.HEADERS)

    async def raw(self, request: Request) -> Response:
        """The message exactly as it was submitted, as a file."""
        session = await self._site.signed_in(request, "review")
        id_ = str(number(str(request.path_params["id"])))
        async with self._site.visitors.acting(session) as connection:
            message = await content.held(connection, await self._access(connection), id_)
            first = await content.piece(connection, message, 1)
        if first is None:
            raise NotThere(f"message {message} has no body")
        headers = {**_RAW, "Content-Disposition": f'attachment; filename="{message}.eml"'}
        return StreamingResponse(
            content.pieces(message, first, lambda: self._site.visitors.acting(session)),
            headers=headers,
            media_type="message/rfc822",
        )

    async def rescan(self, request: Request) -> Response:
        """Ask the content check again about one message: the verdict that it would get now, which the audit keeps."""
        session = await self._site.signed_in(request, "review")
        form = await form_of(request, session)
        id_ = str(number(str(request.path_params["id"])))
        by = By(reason=form.one("reason").strip() or None)
        files = self._site.service.files
        settings = await files.smtpd()
        checks = Checks(check_of(settings, files.rules))
        try:
            async with self._site.visitors.acting(session) as connection:
                these = await narrowed(connection, await self._access(connection), "rescan", [id_])
                audit, released, rescanned = await one(connection, these, checks, by, release=bool(form.one("release")))
        finally:
            await checks.close()
        return self._site.page("review/rescanned", session, id=id_, audit=audit, released=released, rescanned=rescanned)

    async def preview(self, request: Request) -> Response:
        """What a decision would be made about."""
        session = await self._site.signed_in(request, "review")
        query = query_of(request)
        check_ids(query, session)
        return await self._preview(session, query)

    async def decide(self, request: Request) -> Response:
        """Release or delete."""
        session = await self._site.signed_in(request, "review")
        form = await form_of(request, session)
        asked = _asked(form)
        try:
            by = By(reason=form.one("reason").strip() or None)

            async def work(watch: Watch) -> Done:
                async with self._site.visitors.acting(session) as connection:
                    access = await self._access(connection)
                    words = (await narrowed(connection, access, asked.verb, asked.words(), closing=not asked.ids)).words
                    plan = await act.plan(connection, asked.change(), words)
                    return await act.act(connection, by, plan, watch)

            audit = await self._site.service.changes.begun(request, work)
        except (NotThere, NotNow) as error:
            return await self._gone(session, asked.ids, error)
        except (ConditionError, Refused) as error:
            return await self._preview(session, form, error.reason if isinstance(error, Refused) else str(error))
        return decided.to(audit, asked.ids)

    async def _preview(self, session: Session, form: Form, error: str = "") -> Response:
        """The page that asks for a reason and for consent."""
        asked = _asked(form)
        try:
            async with self._site.visitors.acting(session) as connection:
                access = await self._access(connection)
                kept = await narrowed(connection, access, asked.verb, asked.words(), closing=not asked.ids)
                plan = await act.plan(connection, asked.change() if not error else decide.delete(), kept.words)
                first = await held.mail(connection, kept.asking, after=0, limit=10)
                others = await decided.decisions(connection, sorted(set(asked.ids) - {each.id for each in first}))
        except (NotThere, NotNow) as gone:
            return await self._gone(session, asked.ids, gone)
        last = asked.last or ("" if asked.ids else str(plan.counted.last))
        values = {"asked": asked._replace(last=last), "wanted": plan.wanted, "size": format_size(plan.counted.bytes)}
        values |= {"grace": await self._grace()}
        values |= {"first": first, "others": others, "reason": form.one("reason"), "error": error}
        status = HTTPStatus.UNPROCESSABLE_ENTITY if error else HTTPStatus.OK
        return self._site.page("review/decide", session, status=status, **values)

    async def _grace(self) -> str:
        """For how long a body stays that no recipient needs any more; empty where this host has no queued.yaml."""
        try:
            return format_duration((await self._site.service.files.queued()).maintenance.grace)
        except NotNow:
            return ""

    async def _gone(self, session: Session, ids: Sequence[int], error: Refused) -> Response:
        """The page for mail that is held no more: who decided what."""
        async with self._site.visitors.acting(session) as connection:
            others = await decided.decisions(connection, ids)
        return self._site.page("review/gone", session, status=HTTPStatus.CONFLICT, others=others, why=error.reason)

    async def _access(self, connection: database.Connection) -> Access:
        return await admit(connection, await self._site.service.files.smtpd())


async def _octets(connection: database.Connection, message: Any) -> bytes:
    """The content of a message, as far as it is looked at."""
    rows = await database.fetch(connection, "queue_content", message=message, most=held.MOST_READ)
    return bytes(rows[0].content) if rows else b""


def _asked(form: Form) -> Asked:
    """What a form asks for; Problem 422."""
    verb = form.one("verb")
    if verb not in _VERBS:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"verb: allowed: {' or '.join(_VERBS)}")
    ids = sorted({number(each) for each in form.every("id")})
    condition, last = form.one("condition"), form.one("last")
    if not ids and not condition.strip():
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "nothing is selected; select mail in the list first")
    return Asked(verb, ids, condition, str(number(last)) if last else "", form.one("to").strip())
