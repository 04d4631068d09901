"""test_hostile_fields — every field of every form, link and address of the console, with values that break parsers

Owns: the walk through the console's own pages, which finds the fields. Nothing that a person could type, or put into an
    address, is a fault of ours.
See: tests/integration/httpd/test_hostile_values.py, which does the same by the API.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from tests.fixtures.daemons.console import change_ended, signed_in
from tests.integration.httpd.test_hostile_values import HOSTILE

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.api import Api
    from tests.fixtures.database.factory import Factory

#: These end the session, or never end.
_APART: Final = ("/console/sign-out", "/console/now/events", "/console/static/")


class Sent(NamedTuple):
    """What a form or a link sends."""

    method: str
    to: str  # without a query
    fields: dict[str, str]

    @property
    def kind(self) -> tuple[object, ...]:
        """The same for forms that differ by ids alone."""
        acts = self.fields.get("act", self.fields.get("verb", "")).partition(" ")[0]
        return self.method, re.sub(r"\d+", "0", self.to), acts, tuple(self.fields)

    @classmethod
    def asking(cls, where: str) -> Sent:
        """What a link sends."""
        parts = urlsplit(where)
        return cls("GET", parts.path, dict(parse_qsl(parts.query, keep_blank_values=True)))


class Page(HTMLParser):
    """The links of a page, and what its forms send: each choice of a list or button once."""

    def __init__(self, where: str, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Sent] = []
        self._where = where
        self._choices: dict[str, list[str]] = {}  # of the form that is open
        self._open: tuple[str, str, dict[str, str]] | None = None
        self._select = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name, value = given.get("name", ""), given.get("value", "")
        if tag == "a":
            self.links.append(urljoin(self._where, given.get("href", "")))
        elif tag == "form":
            to = urlsplit(urljoin(self._where, given.get("action", self._where))).path
            self._open, self._choices = (given.get("method", "get").upper(), to, {}), {}
        elif self._open is None:
            return
        elif tag == "option" and self._select:
            self._choices.setdefault(self._select, []).append(value)
        elif tag in {"select", "datalist"}:
            self._select = name  # which a datalist has not
        elif tag == "button" and name:
            self._choices.setdefault(name, []).append(value)
        elif name:
            self._open[2].setdefault(name, value)

    def handle_endtag(self, tag: str) -> None:
        if tag != "form" or self._open is None:
            return
        method, to, fields = self._open
        for chosen in product(*self._choices.values()):
            picked = dict(zip(self._choices, chosen, strict=True))
            self.forms.append(Sent(method, to, fields | picked))
        self._open = None


async def walked(client: httpx.AsyncClient) -> tuple[list[Sent], list[Sent]]:
    """The pages, one for each set of fields, and what their forms send."""
    pages: dict[tuple[object, ...], Sent] = {}
    forms: dict[tuple[object, ...], Sent] = {}
    ahead = ["/console/now"]
    while ahead:
        where = ahead.pop()
        page = Sent.asking(where)
        if page.kind in pages or not page.to.startswith("/console") or page.to.startswith(_APART):
            continue
        pages[page.kind] = page
        answer = await client.get(where)
        assert answer.status_code < 500, (where, answer.text)
        if answer.headers.get("content-type", "").startswith("text/html"):
            read = Page(where, answer.text)
            ahead += read.links
            for form in read.forms:
                forms.setdefault(form.kind, form)
                if form.method == "GET":
                    ahead.append(f"{form.to}?{urlencode(form.fields)}")
    return list(pages.values()), list(forms.values())


async def test_no_field_of_the_console_is_a_fault(api: Api, factory: Factory) -> None:
    factory.rows(3, tries=2)
    factory.row(status="HOLD")
    client = await signed_in(api, "olga", "admin", "sender")
    pages, forms = await walked(client)
    assert len(pages) > 20
    assert len({form.kind[:3] for form in forms if form.method == "POST"}) > 20
    asked = [
        each._replace(fields={**each.fields, name: value})
        for each in [*pages, *forms]
        for name in each.fields
        if name != "token" and not each.to.startswith(_APART)
        for value in HOSTILE
    ]
    faults = []
    for each in asked:
        if each.method == "GET":
            answer = await client.get(f"{each.to}?{urlencode(each.fields)}")
        else:
            answer = await client.post(each.to, data=each.fields)
            await change_ended(client, answer)
        if answer.status_code >= 500 or "PostgreSQL text fields" in answer.text:
            faults.append((each, answer.status_code))
    assert faults == []
