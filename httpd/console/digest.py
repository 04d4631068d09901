"""digest — the page behind a link of a digest, by which a reviewer decides about one message without signing in

Guarantees: GET changes nothing, so that a link which a mail scanner follows stays good. POST uses the link up and
    decides, in the name of the person whose link it is: PostgreSQL checks the rights of that person. The link is
    about one recipient of one message, works once and for a while, and is in no log: it is in the query, not the path.
See: operate/quarantine/digest.py; docs/how-to/review/review-quarantined-mail.md.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from starlette.routing import Route

from httpd.console.forms import form_of, query_of
from httpd.problems import Problem
from operate import sign_in
from operate.errors import NotNow, NotThere
from operate.quarantine import decide, held
from operate.quarantine.access import admit, narrowed
from operate.queue import act
from operate.queue.act import By
from shared.postgres import acting

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.site import Site
    from shared.postgres import database

PATH: Final = "/decide"
_TEXT: Final = 4000  # characters that are shown


class Digest:
    """The page."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Its address."""
        return [Route(PATH, self.ask), Route(PATH, self.decide, methods=["POST"])]

    async def ask(self, request: Request) -> Response:
        """What the message is, with a button for each decision."""
        token = query_of(request).one("link")
        async with self._site.service.pool.connection() as connection:
            link, expires = await sign_in.decision_of(connection, token)
        try:
            async with self._acting(link.principal) as connection:
                access = await admit(connection, await self._site.service.files.smtpd())
                shown = await held.message(connection, access, str(link.recipient))
        except (NotThere, NotNow) as gone:
            return self._site.page("review/gone", None, status=HTTPStatus.CONFLICT, others=[], why=gone.reason)
        return self._site.page(
            "review/digest",
            None,
            mail=shown,
            link=token,
            person=link.principal,
            expires=expires,
            text=shown.text[:_TEXT],
        )

    async def decide(self, request: Request) -> Response:
        """Release or delete."""
        form = await form_of(request, None)
        verbs = {"release": decide.release, "delete": decide.delete}
        if form.one("verb") not in verbs:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"verb: allowed: {' or '.join(verbs)}")
        change = verbs[form.one("verb")]()
        async with self._site.service.pool.connection() as connection:
            link = await sign_in.use_decision(connection, form.one("link"))
        try:
            async with self._acting(link.principal) as connection:
                access = await admit(connection, await self._site.service.files.smtpd())
                kept = await narrowed(connection, access, change.verb, [str(link.recipient)])
                plan = await act.plan(connection, change, kept.words)
                done = await act.act(connection, By(reason="decided from the digest"), plan)
        except (NotThere, NotNow) as gone:
            return self._site.page("review/gone", None, status=HTTPStatus.CONFLICT, others=[], why=gone.reason)
        return self._site.page(
            "review/digest_done", None, done=done, verb=change.verb, said=change.said, person=link.principal
        )

    def _acting(self, person: str) -> AbstractAsyncContextManager[database.Connection]:
        seconds = self._site.service.config.timeout.query.total_seconds()
        return acting.borrowed(self._site.service.pool, person, seconds)
