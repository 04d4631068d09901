"""test_quarantine — reviewers read held mail in the console, decide about it, and take a release back

Owns: proofs about httpd/console/quarantine.py, body.py and clean.py over real connections, without a browser.
"""

from __future__ import annotations

import asyncio
import hashlib
import html
import re
import time
from base64 import b64encode
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from httpd.console import body
from httpd.console.clean import clean, cleaned
from httpd.console.visitor import COOKIE
from operate.sign_in import Session
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import begin, path_of, post, signed_in
from tests.fixtures.database.reviewing import hold
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx
    import pytest

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

PDF = b"%PDF-1.4 not really"
MAIL = b"\r\n".join(
    [
        b"From: =?utf-8?q?Ann_<b=3Eold=3C/b>?= <ann@example.com>",
        b"Subject: =?utf-8?q?<script>alert(1)</script>_caf=C3=A9?=",
        b"Authentication-Results: mx.example; spf=fail <i>x</i>",
        b"Content-Type: multipart/mixed; boundary=b",
        b"",
        b"--b",
        b"Content-Type: text/html; charset=utf-8",
        b"",
        b'<p onclick="x()">Hello <a href="https://evil.example/?a=1&amp;b=2">your bank</a><script>y()</script></p>',
        b"--b",
        b"Content-Type: application/pdf; name=bill.pdf",
        b"Content-Transfer-Encoding: base64",
        b"Content-Disposition: attachment; filename=bill.pdf",
        b"",
        b64encode(PDF),
        b"--b--",
        b"",
    ]
)
_FRAME = re.compile(r'<iframe sandbox="" src="([^"]+)"')


async def frame_of(client: httpx.AsyncClient, held: int) -> str:
    """The address of the frame of a message's page."""
    found = _FRAME.search((await client.get(f"/console/held/{held}")).text)
    assert found
    return html.unescape(found[1])


async def test_a_reviewer_sees_the_mail_of_own_quarantines_and_no_other(api: Api, factory: Factory) -> None:
    [spam] = hold(factory, "spam", reason="score <9>")
    [legal] = hold(factory, "legal")
    client = await signed_in(api, "rita", "reviewer", reviews=["spam"])
    listed = (await client.get("/console/quarantine")).text
    assert ("spam" in listed, "legal" in listed) == (True, False)
    mail = (await client.get("/console/held")).text
    assert (f'data-id="{spam}"' in mail, f'data-id="{legal}"' in mail) == (True, False)
    assert "score &lt;9&gt;" in mail
    for path in (f"/console/held/{legal}", f"/console/held/{legal}/raw", f"/console/decide?verb=delete&id={legal}"):
        assert (await client.get(path)).status_code == 403, path
    form = {"verb": "delete", "id": str(legal)}
    assert (await post(client, "/console/account", "/console/decide", **form)).status_code == 403
    assert [row.status for row in factory.queue(legal)] == ["HOLD"]


async def test_the_list_goes_on_where_a_page_ends_and_takes_conditions(api: Api, factory: Factory) -> None:
    ids = hold(factory, "spam", count=51)
    client = await signed_in(api, "rita", "reviewer")
    first = (await client.get("/console/held?condition=quarantine%3Dspam")).text
    assert re.findall(r'data-id="(\d+)"', first) == [str(each) for each in ids[:50]]
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more
    rest = (await client.get(html.unescape(more[1]))).text
    assert re.findall(r'data-id="(\d+)"', rest) == [str(ids[50])]
    wrong = await client.get("/console/held?condition=nothing%3D1")
    assert (wrong.status_code, "nothing" in wrong.text, "allowed" in wrong.text) == (422, True, True)


async def test_a_message_is_shown_safely_with_its_links_as_text_and_its_attachments_by_hash(
    api: Api, factory: Factory
) -> None:
    [held] = hold(factory, "spam", message=factory.message(MAIL), reason="score 9")
    client = await signed_in(api, "rita", "reviewer")
    page = (await client.get(f"/console/held/{held}")).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; café" in page
    assert "<script>alert" not in page
    assert "spf=fail &lt;i&gt;x&lt;/i&gt;" in page
    assert "<code>https://evil.example/?a=1&amp;b=2</code>" in page
    assert 'href="https://evil' not in page
    assert hashlib.sha256(PDF).hexdigest() in page
    assert "made from HTML" in page

    raw = await client.get(f"/console/held/{held}/raw")
    assert raw.content == MAIL
    assert raw.headers["content-disposition"].startswith("attachment;")
    assert raw.headers["content-security-policy"].startswith("sandbox")


async def test_the_body_has_an_answer_of_its_own_without_a_cookie_and_for_its_session_alone(
    api: Api, factory: Factory
) -> None:
    [held, other] = hold(factory, "spam", count=2, message=factory.message(MAIL))
    client = await signed_in(api, "rita", "reviewer")
    address = await frame_of(client, held)
    assert address.startswith("/console-body/")
    bare = await api.client()
    shown = await bare.get(address)
    policy = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert (shown.status_code, shown.headers["content-security-policy"]) == (200, policy)
    assert "set-cookie" not in shown.headers
    assert "<p>Hello <a>your bank</a></p>" in shown.text
    assert "evil" not in shown.text
    # The browser sends the cookie of the console to no such address.
    asked = client.build_request("GET", address)
    assert "cookie" not in asked.headers
    assert "cookie" in client.build_request("GET", "/console/account").headers

    session, id_, part, until, seal = address.removeprefix("/console-body/").split("/")
    for wrong in (
        f"{session}/{other}/{part}/{until}/{seal}",
        f"{session}/{id_}/2/{until}/{seal}",
        f"{session}/{id_}/{part}/{int(until) + 1}/{seal}",
        f"{int(session) + 1}/{id_}/{part}/{until}/{seal}",
        f"{session}/{id_}/{part}/{until}/{'0' * 64}",
    ):
        assert (await bare.get(f"/console-body/{wrong}")).status_code == 403, wrong
    await api.system.rows("UPDATE principals SET reviews = '{legal}' WHERE name = 'rita'")
    assert (await bare.get(address)).status_code == 403
    await api.system.rows("UPDATE principals SET reviews = NULL")
    assert (await bare.get(address)).status_code == 200
    await post(client, "/console/account", "/console/sign-out")
    assert (await bare.get(address)).status_code == 403


def test_an_address_of_a_body_is_good_for_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(1, bytes(32), "rita", frozenset({"reviewer"}))
    *_, until, seal = body.address(session, 4711, 1).split("/")
    assert body.is_good(session, 4711, 1, int(until), seal)
    later = time.time() + 301
    monkeypatch.setattr(time, "time", lambda: later)
    assert not body.is_good(session, 4711, 1, int(until), seal)


def test_what_could_do_something_is_taken_out_and_targets_are_kept() -> None:
    made = cleaned(
        "<base href=http://b/><link rel=prefetch href=http://l/><meta http-equiv=refresh content='0;url=http://m/'>"
        "<style>@import 'http://s/'</style><p style='background:url(http://p/)' onclick=x()>t</p>"
        "<form action=http://f/><input name=a><button>b</button></form><svg><image href=http://v/></svg>"
        "<img src=http://i/><img srcset='http://i/ 2x'><img src='data:image/svg+xml,<svg>'>"
        "<img src='data:image/png;base64,AA=='><iframe src=http://r/></iframe>"
        "<a href='javascript:x()' target=_top>j</a>"
        "<a href='http://a/' ping=http://q/>a</a><video poster=http://o/></video><object data=http://d/></object>"
    )
    assert "http" not in made.html
    assert "javascript" not in made.html
    assert made.html.count("src=") == 1
    assert {"http://a/", "javascript:x()"} <= set(made.links)


async def test_html_that_would_keep_a_parser_busy_for_minutes_is_given_up(api: Api, factory: Factory) -> None:
    deep = b"Subject: deep\r\nContent-Type: text/html\r\n\r\n" + b"<div>" * 200_000
    [held] = hold(factory, "spam", message=factory.message(deep))
    client = await signed_in(api, "rita", "reviewer")
    async with asyncio.timeout(PATIENCE):
        shown = await client.get(await frame_of(client, held))
    assert "cannot be shown safely" in shown.text
    assert await clean("<p>other mail</p>") == ("<p>other mail</p>", ())


async def test_a_decision_is_previewed_made_with_a_reason_and_a_release_is_taken_back(
    api: Api, factory: Factory
) -> None:
    one, two, three = hold(factory, "spam", count=3)
    client = await signed_in(api, "rita", "reviewer")
    preview = await client.get(f"/console/decide?verb=release&id={one}&id={two}")
    assert "Release 2 recipients?" in preview.text
    assert [row.status for row in factory.queue(one, two)] == ["HOLD", "HOLD"]
    page = f"/console/decide?verb=release&id={one}"
    sent = await post(client, page, "/console/decide", verb="release", id=[one, two], reason="known sender")
    result = await client.get(path_of(sent))
    assert "2 recipients of 2 changed, by rita" in result.text
    assert "“known sender”" in result.text
    assert {row.status for row in factory.queue(one, two)} == {"DELIVER"}
    undone = await post(client, path_of(sent), f"{path_of(sent).partition('?')[0]}/undo")
    assert "It undid" in (await client.get(path_of(undone))).text
    assert {row.status for row in factory.queue(one, two)} == {"HOLD"}
    assert {row.metadata["_quarantineid"] for row in factory.queue(one, two)} == {"spam"}
    again = await client.get(path_of(sent))
    assert ("It was undone" in again.text, "/undo" in again.text) == (True, False)

    deleted = await post(client, page, "/console/decide", verb="delete", id=[three], reason="")
    taken_back = await post(client, path_of(deleted), f"{path_of(deleted).partition('?')[0]}/undo")
    assert "1 recipient of 1 changed" in (await client.get(path_of(taken_back))).text
    back = factory.sql(
        "SELECT status::text, metadata FROM pillarbox.queue WHERE metadata->>'_requeued' = %(id)s", id=str(three)
    )
    assert [(row.status, row.metadata["_quarantineid"]) for row in back] == [("HOLD", "spam")]
    [audit] = factory.sql("SELECT who, reason, verb FROM pillarbox.audit WHERE verb = 'release'")
    assert (audit.who, audit.reason) == ("rita", "known sender")


async def test_mail_is_released_to_another_address(api: Api, factory: Factory) -> None:
    [held] = hold(factory, "spam")
    client = await signed_in(api, "rita", "reviewer")
    page = f"/console/decide?verb=release&id={held}"
    wrong = await post(client, page, "/console/decide", verb="release", id=[held], to="not an address", reason="r")
    assert (wrong.status_code, "local-part@domain" in wrong.text) == (422, True)
    await post(client, page, "/console/decide", verb="release", id=[held], to="ann@example.org", reason="r")
    assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE recipientdomain = 'example.org'") == 1
    assert factory.queue(held)[0].status == "DELETE"


async def test_all_that_fits_a_condition_is_decided_but_not_what_came_after_the_preview(
    api: Api, factory: Factory
) -> None:
    before = hold(factory, "spam", count=12)
    client = await signed_in(api, "rita", "reviewer")
    page = "/console/decide?verb=delete&condition=quarantine%3Dspam"
    preview = (await client.get(page)).text
    assert "Delete 12 recipients?" in preview
    assert "The first 10 of 12." in preview
    last = re.search(r'name="last" value="(\d+)"', preview)
    assert last
    [later] = hold(factory, "spam")
    form = {"verb": "delete", "condition": "quarantine=spam", "last": last[1], "reason": "a campaign"}
    await post(client, page, "/console/decide", **form)
    assert {row.status for row in factory.queue(*before)} == {"DELETE"}
    assert factory.queue(later)[0].status == "HOLD"


async def test_what_another_reviewer_decided_meanwhile_is_shown_and_stays(api: Api, factory: Factory) -> None:
    one, two = hold(factory, "spam", count=2)
    rita, mary = await signed_in(api, "rita", "reviewer"), await signed_in(api, "mary", "reviewer")
    page = f"/console/decide?verb=release&id={one}&id={two}"
    assert "Release 2 recipients?" in (await mary.get(page)).text
    gone = await post(rita, page, "/console/decide", verb="delete", id=[one], reason="phishing")
    assert gone.status_code == 303
    sent = await post(mary, page, "/console/decide", verb="release", id=[one, two], reason="fine")
    assert {row.id: row.status for row in factory.queue(one, two)} == {one: "DELETE", two: "DELIVER"}
    result = (await mary.get(path_of(sent))).text
    assert "1 recipient of 1 changed, by mary" in result
    assert re.search(rf"{one}: <b>delete</b> by rita, .*“phishing”", result)
    for path in (f"/console/held/{one}", f"/console/decide?verb=release&id={one}"):
        late = await mary.get(path)
        assert (late.status_code, "<b>delete</b> by rita" in late.text) == (409, True), path
    late = await post(mary, "/console/account", "/console/decide", verb="release", id=[one], reason="fine")
    assert (late.status_code, "<b>delete</b> by rita" in late.text) == (409, True)


@asynccontextmanager
async def stuck_deletion(
    client: httpx.AsyncClient, factory: Factory, ids: list[int], reason: str
) -> AsyncIterator[str]:
    """The page of a deletion of these that waits, for the block, for the last: another session has it locked."""
    with factory.another() as other:
        other.execute("BEGIN")
        other.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", [ids[-1]])
        form = {"verb": "delete", "condition": "quarantine=spam", "last": str(ids[-1]), "reason": reason}
        yield path_of(await begin(client, "/console/account", "/console/decide", **form))


async def test_a_large_decision_goes_on_while_its_page_shows_how_far_it_is(system: System, factory: Factory) -> None:
    """Whichever process makes the decision, and whichever shows its page."""
    ids = hold(factory, "spam", count=2500)
    async with Api(system, await system.httpd(processes=2)) as api:
        client = await signed_in(api, "rita", "reviewer")
        # Connections of their own: all of them meet one process once in a hundred times.
        clients = [await api.client(Cookie=f"{COOKIE}={client.cookies[COOKIE]}") for _ in range(8)]
        async with stuck_deletion(client, factory, ids, "a campaign") as sent:

            async def halfway() -> bool:
                found = await asyncio.gather(*(each.get(sent) for each in clients))
                for page in found:
                    goes_on = (page.headers["refresh"], "It goes on" in page.text, "/undo" in page.text)
                    assert goes_on == ("2", True, False)
                return all("2000 recipients of 2500 changed" in page.text for page in found)

            await eventually(halfway, "two batches are done")

        async def over() -> bool:
            found = await asyncio.gather(*(each.get(sent) for each in clients))
            return all("2500 recipients of 2500 changed" in p.text and "refresh" not in p.headers for p in found)

        await eventually(over, "the decision is over")


async def test_a_decision_that_httpd_did_not_end_says_what_was_done(system: System, factory: Factory) -> None:
    ids = hold(factory, "spam", count=1001)
    async with Api(system, await system.httpd()) as api:
        client = await signed_in(api, "rita", "reviewer")
        async with stuck_deletion(client, factory, ids, "") as sent:
            await eventually(lambda: factory.one("SELECT done FROM pillarbox.audit") == 1000, "one batch is done")
            await api.daemon.kill()
    async with Api(system, await system.httpd("second")) as api:
        page = await (await signed_in(api, "rita")).get(sent)
        assert "1000 recipients of 1001 changed" in page.text
        assert "It did not come to its end" in page.text


async def test_ids_of_more_digits_than_int_reads_are_not_found(api: Api) -> None:
    client = await signed_in(api, "rita", "reviewer")
    assert (await client.get("/console/decided/1", params={"ids": "9" * 5000})).status_code == 404


async def test_a_reviewer_takes_back_no_decision_of_another_and_an_operator_does(api: Api, factory: Factory) -> None:
    [gone] = hold(factory, "spam")
    rita, mary = await signed_in(api, "rita", "reviewer"), await signed_in(api, "mary", "reviewer")
    page = f"/console/decide?verb=delete&id={gone}"
    sent = path_of(await post(rita, page, "/console/decide", verb="delete", id=[gone], reason="")).partition("?")[0]
    assert f"{sent}/undo" not in (await mary.get(sent)).text
    assert (await post(mary, "/console/account", f"{sent}/undo")).status_code == 403
    assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE status = 'HOLD'") == 0


async def test_a_reviewer_takes_back_no_release_of_another_and_an_operator_does(api: Api, factory: Factory) -> None:
    [held] = hold(factory, "spam")
    rita, mary = await signed_in(api, "rita", "reviewer"), await signed_in(api, "mary", "reviewer")
    olga = await signed_in(api, "olga", "operator")
    page = f"/console/decide?verb=release&id={held}"
    sent = path_of(await post(rita, page, "/console/decide", verb="release", id=[held], reason="")).partition("?")[0]
    assert f"{sent}/undo" not in (await mary.get(sent)).text
    assert (await post(mary, "/console/account", f"{sent}/undo")).status_code == 403
    assert factory.queue(held)[0].status == "DELIVER"
    assert (await post(olga, sent, f"{sent}/undo")).status_code == 303
    assert factory.queue(held)[0].status == "HOLD"
