"""acting — the pages by which operators change queued mail: preview with a reason, then the result with its undo

Owns: the verbs as people see them, and the values each asks for.
Guarantees: GET changes nothing. What came after the preview is not touched. Without a condition nothing is changed: all
    mail at once is for the command line.
See: operate/queue/verbs.py and act.py; httpd/console/decided.py for the result.
"""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.routing import Route

from httpd.console import decided
from httpd.console.forms import check_ids, form_of, query_of
from httpd.console.numbers import number
from httpd.problems import Problem
from httpd.routes.acting import address, span
from operate.condition.words import words_of
from operate.errors import Refused
from operate.queue import act, verbs
from operate.queue.act import By, Change
from shared.config.condition.tree import ConditionError
from shared.config.units import format_size
from shared.masking import show

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from httpd.console.forms import Form
    from httpd.console.site import Site
    from operate.queue.act import Done, Watch
    from operate.sign_in import Session


class Verb(NamedTuple):
    """A verb as people see it. does: to the mail; undo: what can be taken back."""

    label: str
    does: str
    undo: str


_WAITS: Final = "It can be undone for mail that still waits."
VERBS: Final = {
    "hold": Verb("Hold", "They wait until somebody releases them.", _WAITS),
    "release": Verb("Release", "Held mail is tried at once.", _WAITS),
    "retry": Verb("Try now", "They are due at once.", _WAITS),
    "delay": Verb("Delay", "They are due later.", _WAITS),
    "priority": Verb("Change priority", "Above 0 is urgent, below 0 is bulk.", _WAITS),
    "move": Verb("Move", "They get another transport, another partition, or both.", _WAITS),
    "copy": Verb("Release a copy", "Held mail is sent, and stays on hold.", "It cannot be undone."),
    "bounce": Verb("Bounce", "They end here, and their senders are notified.", "It cannot be undone."),
    "delete": Verb(
        "Delete",
        "They end here, and no sender is notified.",
        "It can be undone for some minutes, while bodies are kept.",
    ),
}


class Asked(NamedTuple):
    """What a form asks for: a verb, and recipients by their numbers or by a condition, up to one number."""

    verb: str
    ids: list[int]
    condition: str
    last: str

    def words(self) -> list[str]:
        """The condition's words."""
        if self.ids:
            return [str(each) for each in self.ids]
        words = words_of(self.condition)
        return ["(", *words, ")", f"id<={self.last}"] if self.last and words else words


class Acting:
    """The pages."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """Their addresses."""
        return [Route("/console/act", self.preview), Route("/console/act", self.act, methods=["POST"])]

    async def preview(self, request: Request) -> Response:
        """What a change would be made to."""
        session = await self._site.signed_in(request, "operate")
        query = query_of(request)
        check_ids(query, session)
        return await self._preview(session, query)

    async def act(self, request: Request) -> Response:
        """Change it."""
        session = await self._site.signed_in(request, "operate")
        form = await form_of(request, session)
        asked = _asked(form)
        try:
            by = By(reason=form.one("reason").strip() or None)
            change = _change(form, self._site.service.files.folder)

            async def work(watch: Watch) -> Done:
                async with self._site.visitors.acting(session) as connection:
                    plan = await act.plan(connection, change, asked.words())
                    return await act.act(connection, by, plan, watch)

            audit = await self._site.service.changes.begun(request, work)
        except (ConditionError, Refused) as error:
            return await self._preview(session, form, error.reason if isinstance(error, Refused) else str(error))
        return decided.to(audit, came_from="queue")

    async def _preview(self, session: Session, form: Form, error: str = "") -> Response:
        """The page with the count, the first ten, and the form for values and reason."""
        asked = _asked(form)
        async with self._site.visitors.acting(session) as connection:
            plan = await act.plan(connection, _nominal(asked.verb), asked.words())
            first = await plan.sample(connection)
        last = asked.last or ("" if asked.ids else str(plan.counted.last))
        names = ("reason", "quarantine", "for", "priority", "transport", "partition", "to")
        return self._site.page(
            "queue/act", session, status=HTTPStatus.UNPROCESSABLE_ENTITY if error else HTTPStatus.OK,
            asked=asked._replace(last=last), verb=VERBS[asked.verb], wanted=plan.wanted, first=first, error=error,
            size=format_size(plan.counted.bytes), given={name: form.one(name) for name in names},
        )  # fmt: skip


def _asked(form: Form) -> Asked:
    """What a form asks for; Problem 422."""
    verb = form.one("verb")
    if verb not in VERBS:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"verb: allowed: {', '.join(VERBS)}")
    ids = [] if form.one("all") else sorted({number(each) for each in form.every("id")})
    condition, last = form.one("condition"), form.one("last")
    if not ids and not condition.strip():
        why = "select mail, or show the mail of a condition first; all mail at once is for `pillarbox queue`"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, why)
    return Asked(verb, ids, condition, str(number(last)) if last else "")


def _nominal(verb: str) -> Change:
    """A change with the statuses of this verb, to preview what it would act on."""
    match verb:
        case "delay":
            return verbs.delay(timedelta(hours=1))
        case "priority":
            return verbs.priority(0)
        case "move":
            return Change("move", "queue_move", ("HOLD", "DELIVER"), "moved")
        case "hold":
            return verbs.hold(None, None)
        case "copy":
            return verbs.copy(None)
    simple = {"release": verbs.release, "retry": verbs.retry, "bounce": verbs.bounce, "delete": verbs.delete}
    return simple[verb]()


def _change(form: Form, folder: Path) -> Change:
    """The change with the values of the form; Refused."""
    verb = form.one("verb")
    match verb:
        case "delay":
            return verbs.delay(span(form.one("for").strip(), "for"))
        case "priority":
            text = form.one("priority").strip()
            if not text.removeprefix("-").isdecimal():
                raise Refused(f"{show(text)} is not a priority; allowed: -9 to 9")
            return verbs.priority(int(text[:20]))
        case "move":
            return verbs.move(folder, form.one("transport").strip() or None, form.one("partition").strip() or None)
        case "hold":
            quarantine = form.one("quarantine").strip()[: verbs.LONGEST_WORD] or None
            return verbs.hold(quarantine, form.one("reason").strip() or None)
        case "copy":
            to = form.one("to").strip()
            return verbs.copy(address(to, "to") if to else None)
    return _nominal(verb)
