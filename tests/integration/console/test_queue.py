"""test_queue — operators look at queued mail in the console, change it and take it back

Owns: proofs about httpd/console/queue.py and acting.py over real connections.
"""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.console import path_of, post, signed_in
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.api import Api
    from tests.fixtures.database.factory import Factory


def listed(page: str) -> list[int]:
    """The recipients of a page of the list."""
    return [int(each) for each in re.findall(r'data-id="(\d+)"', page)]


async def until_counted(client: httpx.AsyncClient, path: str, said: str) -> None:
    """A count is given up that takes too long, as on a machine that is busy at that moment."""

    async def counted() -> bool:
        return said in (await client.get(path)).text

    await eventually(counted, said)


async def test_the_list_takes_conditions_points_at_mistakes_and_goes_on_where_a_page_ends(
    api: Api, factory: Factory
) -> None:
    ids = factory.rows(51, domain="slow.example", tries=3, due=timedelta(hours=1))
    [other] = factory.rows(1)
    client = await signed_in(api, "vera", "viewer")
    assert listed((await client.get("/console/queue")).text) == ids[:50]
    first = (await client.get("/console/queue?condition=state%3DDEFER")).text
    assert listed(first) == ids[:50]
    await until_counted(client, "/console/queue?condition=state%3DDEFER", "Recipients: 51<")
    assert "With these" not in first  # a viewer changes nothing
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more
    assert listed((await client.get(html.unescape(more[1]))).text) == ids[50:]
    assert listed((await client.get("/console/queue?condition=recipientdomain%3Dexample.com")).text) == [other]
    wrong = await client.get("/console/queue?condition=state%3DDEFER+recipientdomian%3Dx")
    assert wrong.status_code == 422
    error = html.unescape(wrong.text.partition('role="alert">')[2].partition("</pre>")[0])
    assert "did you mean recipientdomain?" in error
    assert "^" in error  # the place
    assert 'aria-invalid="true"' in wrong.text


async def test_groups_are_by_any_column(api: Api, factory: Factory) -> None:
    factory.rows(3, domain="big.example")
    factory.rows(1, domain="small.example")
    client = await signed_in(api, "vera", "viewer")
    page = (await client.get("/console/queue?by=recipientdomain,state")).text
    rows = re.findall(r"<tr><td><bdi>([^<]+)</bdi><td><bdi>ACTIVE</bdi><td class=\"number\">(\d+)", page)
    assert rows == [("big.example", "3"), ("small.example", "1")]
    wrong = await client.get("/console/queue?by=colour")
    assert (wrong.status_code, "is not a column to group by" in wrong.text) == (422, True)


async def test_a_count_ends_where_it_is_long_enough(api: Api, factory: Factory) -> None:
    factory.rows(10_051)
    client = await signed_in(api, "vera", "viewer")
    await until_counted(client, "/console/queue", "Recipients: more than 10,000<")


async def test_a_recipient_has_its_envelope_header_tries_and_history_with_everything_escaped(
    api: Api, factory: Factory
) -> None:
    message = factory.message(b"Subject: =?utf-8?q?<b>caf=C3=A9</b>?=\r\n\r\nhello\r\n")
    [id_] = factory.rows(1, message=message, tries=1, due=timedelta(hours=1))
    factory.sql("UPDATE pillarbox.queue SET last_error = '450 <script>x</script>'")
    factory.sql(
        """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                  recipientdomain, size, remote, outcome, scope, reply_code, reply_text, duration, tls)
           VALUES (now(), %(id)s, %(message)s, 1, 7, 'w1', 'default', 'example.com', 9, '192.0.2.25:25', 'deferred',
                   'recipient', 450, '450 <script>x</script>', '1.5 s', 'TLSv1.3 AES verified')""",
        id=id_,
        message=message,
    )
    client = await signed_in(api, "olga", "operator")
    page = (await client.get(f"/console/queue/{id_}")).text
    assert "<script>x" not in page
    for shown in (
        "&lt;b&gt;café&lt;/b&gt;",
        "450 &lt;script&gt;x",
        "192.0.2.25:25",
        "TLSv1.3 AES verified",
        "tried 1 time",
    ):
        assert shown in page, shown
    sent = await post(client, "/console/account", "/console/act", verb="retry", id=[id_], reason="they are back")
    assert sent.status_code == 303
    assert "by olga (audit" in (await client.get(f"/console/queue/{id_}")).text

    # Finished, it is found with its history.
    factory.move([id_], "DELETE")
    factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'w1', 10)")
    gone = await client.get(f"/console/queue/{id_}")
    assert (gone.status_code, "It is not in the queue any more" in gone.text, "they are back" in gone.text) == (
        200,
        True,
        True,
    )
    assert (await client.get("/console/queue/4711")).status_code == 404


async def test_a_change_is_previewed_made_with_a_reason_and_undone(api: Api, factory: Factory) -> None:
    ids = factory.rows(12, domain="slow.example", tries=1, due=timedelta(hours=1))
    client = await signed_in(api, "olga", "operator")
    page = "/console/act?verb=hold&all=yes&condition=recipientdomain%3Dslow.example"
    preview = (await client.get(page)).text
    assert "Hold: 12 recipients?" in preview
    assert "The first 10 of 12." in preview
    assert {row.status for row in factory.queue(*ids)} == {"DELIVER"}
    last = re.search(r'name="last" value="(\d+)"', preview)
    assert last
    [later] = factory.rows(1, domain="slow.example", due=timedelta(hours=1))
    form = {"verb": "hold", "condition": "recipientdomain=slow.example", "last": last[1]}
    sent = path_of(await post(client, page, "/console/act", **form, reason="they ask for it", quarantine="slow"))
    result = (await client.get(sent)).text
    assert "12 recipients of 12 changed, by olga" in result
    assert "“they ask for it”" in result
    assert {row.metadata["_quarantineid"] for row in factory.queue(*ids)} == {"slow"}
    assert factory.queue(later)[0].status == "DELIVER"
    undone = path_of(await post(client, sent, f"{sent.partition('?')[0]}/undo"))
    assert "12 recipients of 12 changed" in (await client.get(undone)).text
    assert {row.status for row in factory.queue(*ids)} == {"DELIVER"}


@pytest.mark.parametrize(
    ("verb", "values", "column", "wanted"),
    [
        ("priority", {"priority": "-3"}, "priority", -3),
        ("bounce", {}, "status", "BOUNCE"),
        ("delete", {}, "status", "DELETE"),
    ],
)
async def test_every_verb_changes_what_is_selected(
    api: Api, factory: Factory, verb: str, values: dict[str, str], column: str, wanted: object
) -> None:
    one, other = factory.rows(2)
    client = await signed_in(api, "olga", "operator")
    page = f"/console/act?verb={verb}&id={one}"
    await post(client, page, "/console/act", verb=verb, id=[one], reason="", **values)
    assert getattr(factory.queue(one)[0], column) == wanted
    assert getattr(factory.queue(other)[0], column) != wanted


async def test_wrong_values_are_said_on_the_form_and_nothing_is_changed(api: Api, factory: Factory) -> None:
    [id_] = factory.rows(1)
    client = await signed_in(api, "olga", "operator")
    for verb, values, said in (
        ("priority", {"priority": "12"}, "12 is not a priority; allowed: -9 to 9"),
        ("delay", {"for": "soon"}, "for: "),
        ("move", {}, "a change is missing"),
        ("copy", {}, None),
    ):
        answer = await post(client, "/console/account", "/console/act", verb=verb, id=[id_], reason="", **values)
        assert answer.status_code == (422 if said else 409), verb
        assert (said or "is ACTIVE; allowed: mail on hold") in html.unescape(answer.text), verb
    everything = await client.get("/console/act?verb=delete&all=yes")
    assert (everything.status_code, "all mail at once is for" in everything.text) == (422, True)
    assert factory.sql("SELECT 1 FROM pillarbox.audit") == []
