"""test_lists — operators and admins list, add and end what is set, with who and why

Owns: proofs about httpd/console/lists.py and listed.py over real connections.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

import pytest

from httpd.console.listed import LISTS
from tests.fixtures.daemons.console import PASSWORD, path_of, post, signed_in
from tests.fixtures.database.operating import write_config

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.api import Api
    from tests.fixtures.database.factory import Factory


async def changed(client: httpx.AsyncClient, list_: str, /, **fields: str) -> str:
    """The page after a form of this list."""
    answer = await post(client, f"/console/{list_}", f"/console/{list_}", **fields)
    if answer.status_code == 303:
        answer = await client.get(path_of(answer))
    return html.unescape(answer.text)


async def undone(client: httpx.AsyncClient, page: str) -> str:
    """The page after an undo of what a page says was done."""
    found = re.search(r"(/console/decided/\d+)\?from=\w+", page)
    assert found
    answer = await post(client, found[1], f"{found[1]}/undo")
    return (await client.get(path_of(answer))).text


_MANY = {
    "suspends": """
        INSERT INTO pillarbox.suspends (selection, reason, who)
        SELECT jsonb_build_object('destination', jsonb_build_array('n' || n || '-example')), 'x', 'x'
          FROM generate_series(1, 2500) AS n""",
    "schedules": r"""
        INSERT INTO pillarbox.schedules (id, cron, sender, recipients, content, next_at)
        SELECT 'n' || n || '-example', '0 9 1 1 *', 'a@example.com', '{b@example.com}', E'Subject: x\r\n\r\n', now()
          FROM generate_series(1, 2500) AS n""",
    "webhooks": """
        INSERT INTO pillarbox.webhooks (name, url, events, secrets, state)
        SELECT 'n' || n || '-example', 'http://127.0.0.1:9', '{delivered}', '{env:X}', 'disabled'
          FROM generate_series(1, 2500) AS n""",
    "keys": """
        INSERT INTO pillarbox.api_keys (prefix, digest, principal, scopes, label)
        SELECT 'pb_' || lpad(to_hex(n), 12, '0'), sha256(n::text::bytea), 'adam', '{send}', 'n' || n || '-example'
          FROM generate_series(1, 2500) AS n""",
    "people": """
        INSERT INTO pillarbox.principals (name) SELECT 'n' || n || '-example' FROM generate_series(1, 2499) AS n""",
}


@pytest.mark.parametrize("list_", _MANY)
async def test_thousands_of_lines_are_on_several_pages(api: Api, factory: Factory, list_: str) -> None:
    client = await signed_in(api, "adam", "admin", "operator")
    factory.sql(_MANY[list_])
    found: list[str] = []
    next_, lines = f"/console/{list_}", []
    while next_:
        page = (await client.get(html.unescape(next_))).text
        lines.append(page.count("<tr"))
        found += re.findall(r"n\d+-example", page)
        more = re.search(r'href="([^"]+)" rel="next"', page)
        next_ = more[1] if more else ""
    assert len(lines) == 3
    assert set(found) == {f"n{number}-example" for number in range(1, 2500 if list_ == "people" else 2501)}
    gone = await client.get(f"/console/{list_}", params={"after": "gone"})
    assert (gone.status_code, gone.text.count("<tr")) == (200, lines[0])


async def test_a_suspend_is_added_listed_ended_and_taken_back(api: Api, factory: Factory) -> None:
    write_config(api.system.folder, api.system.uri)
    client = await signed_in(api, "olga", "operator")
    wrong = await changed(client, "suspends", act="add", reason="maintenance")
    assert "no mail selected" in wrong
    page = await changed(
        client, "suspends", act="add", destination="slow.example", reason="they <b>ask</b>", **{"for": "2h"}
    )
    assert "destination slow.example is suspended" in page
    [row] = factory.sql("SELECT id, who, reason FROM pillarbox.suspends")
    assert (row.who, row.reason) == ("olga", "they <b>ask</b>")
    assert "<b>ask</b>" not in (await client.get("/console/suspends")).text
    assert "It undid" in await undone(client, page)
    assert factory.sql("SELECT 1 FROM pillarbox.suspends") == []
    await changed(client, "suspends", act="add", destination="slow.example", reason="again")
    [row] = factory.sql("SELECT id FROM pillarbox.suspends")
    page = await changed(client, "suspends", act=f"end {row.id}", reason="they are back")
    assert "The suspend is ended" in page
    assert "they are back" in (await client.get("/console/audit")).text
    assert "It undid" in await undone(client, page)
    assert len(factory.sql("SELECT 1 FROM pillarbox.suspends")) == 1


async def test_a_suppression_is_added_and_ended(api: Api, factory: Factory) -> None:
    client = await signed_in(api, "olga", "operator")
    wrong = await changed(client, "suppressions", act="add", targets="no address@", reason="x")
    assert "allowed: an address or a domain" in wrong
    page = await changed(client, "suppressions", act="add", targets="Ann@Example.com, gone.example", reason="left")
    assert "gets no more mail" in page
    assert [row.target for row in factory.sql("SELECT target FROM pillarbox.suppressions ORDER BY 1")] == [
        "ann@example.com",
        "gone.example",
    ]
    page = await changed(client, "suppressions", act="end ann@example.com", reason="she is back")
    assert "ann@example.com gets mail again" in page
    assert [row.target for row in factory.sql("SELECT target FROM pillarbox.suppressions")] == ["gone.example"]


async def test_a_dead_letter_is_sent_once_more_once(api: Api, factory: Factory) -> None:
    [id_] = factory.rows(1)
    factory.sql(
        """WITH gone AS (DELETE FROM pillarbox.queue RETURNING *)
           INSERT INTO pillarbox.archive (id, messages__id, actionid, finished, result, ts, recipientlocalpart,
                  recipientdomain, size, metadata, transportid, priority, retry_count, last_error)
           SELECT id, messages__id, actionid, now(), 'failed', ts, recipientlocalpart, recipientdomain, size, metadata,
                  transportid, priority, 3, '550 <i>no</i>' FROM gone"""
    )
    client = await signed_in(api, "olga", "operator")
    shown = (await client.get("/console/deadletters")).text
    assert "550 &lt;i&gt;no&lt;/i&gt;" in shown
    assert "1 sent once more" in await changed(client, "deadletters", act=f"requeue {id_}")
    assert [row.metadata["_requeued"] for row in factory.queue()] == [str(id_)]
    assert "Send once more" not in (await client.get("/console/deadletters")).text


async def test_an_admin_adds_a_person_who_signs_in_and_a_key_that_works_and_ends_both(
    api: Api, factory: Factory
) -> None:
    admin = await signed_in(api, "ada", "admin")
    page = await changed(admin, "people", act="add", name="nora", roles="reviewer, viewer")
    link = re.search(r"<code class=\"hash\">(http[^<]+)</code>", page)
    assert link
    nora = await api.client()
    form = {"link": link[1].partition("token=")[2], "password": PASSWORD, "again": PASSWORD}
    assert (await nora.post("/console/link", data=form)).status_code == 303
    assert (await nora.get("/console/queue")).status_code == 200
    assert "allowed: viewer" in await changed(admin, "people", act="add", name="otto", roles="king")
    assert "it has a space" in await changed(admin, "people", act="add", name="otto maier", roles="viewer")
    page = await changed(admin, "keys", act="add", principal="nora", scopes="read", reason="a script")
    key = re.search(r"<code class=\"hash\">(pb_[^<]+)</code>", page)
    assert key
    program = await api.client(key[1])
    assert (await program.get("/v1/queue")).status_code == 200
    assert key[1] not in (await admin.get("/console/keys")).text
    prefix = key[1].rpartition("_")[0] if key[1].count("_") == 2 else "_".join(key[1].split("_")[:2])
    assert "is revoked" in await changed(admin, "keys", act=f"revoke {prefix}")
    assert "nora: disabled" in await changed(admin, "people", act="disable nora")
    assert (await nora.get("/console/queue")).status_code == 303


async def test_a_webhook_is_added_with_its_secret_and_disabled(api: Api, factory: Factory) -> None:
    client = await signed_in(api, "olga", "operator")
    page = await changed(client, "webhooks", act="add", name="crm", url="https://crm.example/hook", events="delivered")
    assert "whsec_" in page
    assert "whsec_" not in (await client.get("/console/webhooks")).text
    assert "crm: disabled" in await changed(client, "webhooks", act="disable crm", reason="their holiday")
    assert "their holiday" in (await client.get("/console/webhooks")).text


async def test_every_list_is_empty_in_words_and_refuses_what_it_does_not_have(api: Api) -> None:
    client = await signed_in(api, "ada", "admin")
    for each in LISTS:
        page = await client.get(f"/console/{each.name}")
        assert page.status_code == 200, each.name
        if each.name not in {"people", "keys", "audit"}:
            assert "There is none." in page.text, each.name
        if each.acts:
            wrong = await post(client, "/console/account", f"/console/{each.name}", act="explode all")
            assert (wrong.status_code, "act: allowed:" in wrong.text) == (422, True), each.name
