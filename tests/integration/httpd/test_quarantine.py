"""test_quarantine — held mail by HTTP: shown safely, decided about by its reviewers alone

Owns: proofs about httpd/routes/quarantine.py over real connections.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.fixtures.daemons.api import Api
from tests.fixtures.database.operating import write_config
from tests.fixtures.database.principals import close
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.http_peer import HttpPeer, verdict

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

HOSTILE = b"Subject: =?utf-8?q?a=1b[31mb?=\r\nContent-Type: text/html\r\n\r\n<script>alert(1)</script><p>hello</p>\r\n"


async def test_held_mail_is_listed_shown_safely_and_given_as_it_is_only_as_an_attachment(
    api: Api, factory: Factory
) -> None:
    [held] = hold(factory, "contentcheck", message=factory.message(HOSTILE), reason="score 9")
    hold(factory, "legal", count=2)
    client = await api.caller("rita", "reviewer", kind="person")
    found = (await client.get("/v1/quarantine")).json()
    assert [(each["id"], each["recipients"], each["may"]) for each in found][:2] == [
        ("legal", 2, True),
        ("contentcheck", 1, True),
    ]
    first = (await client.get("/v1/quarantine/mail", params={"limit": "2"})).json()
    rest = (await client.get("/v1/quarantine/mail", params={"limit": "2", "after": first["next"]})).json()
    assert [each["id"] for each in first["data"]][:1] == [held]
    assert (len(first["data"]), len(rest["data"]), rest["next"]) == (2, 1, None)

    shown = await client.get(f"/v1/quarantine/mail/{held}")
    assert (shown.json()["reason"], shown.json()["text"].strip()) == ("score 9", "hello")
    assert "\x1b" not in str(shown.json())
    assert "script" not in shown.json()["text"]

    raw = await client.get(f"/v1/quarantine/mail/{held}/raw")
    assert raw.content == HOSTILE
    assert raw.headers["content-type"] == "message/rfc822"
    assert raw.headers["content-disposition"] == f'attachment; filename="{shown.json()["message"]}.eml"'
    assert raw.headers["content-security-policy"].startswith("sandbox")
    assert raw.headers["x-content-type-options"] == "nosniff"


async def test_quarantines_are_those_of_the_file_that_mail_smtpd_names(system: System, factory: Factory) -> None:
    write_config(system.folder, system.uri, quarantines=[{"id": "other"}])  # smtpd.yaml, which is not that file
    rules = {"quarantines": [{"id": "legal", "description": "contracts"}]}
    async with Api(system, await system.httpd(smtpd=rules)) as api:
        hold(factory, "legal")
        client = await api.caller("rita", "reviewer", kind="person")
        found = {each["id"]: each["description"] for each in (await client.get("/v1/quarantine")).json()}
        assert found["legal"] == "contracts"
        assert "other" not in found


async def test_a_large_message_comes_whole(api: Api, factory: Factory) -> None:
    content = b"Subject: large\r\n\r\n" + bytes(range(1, 256)) * 10_000
    [held] = hold(factory, "contentcheck", message=factory.message(content))
    client = await api.caller("rita", "reviewer", kind="person")
    assert (await client.get(f"/v1/quarantine/mail/{held}/raw")).content == content


async def test_release_and_delete_decide_with_preview_and_audit(api: Api, factory: Factory) -> None:
    one, two, three = hold(factory, "contentcheck", count=3)
    client = await api.caller("rita", "reviewer", kind="person")
    body = {"condition": f"{one} {two} {three}", "reason": "looked at", "dry_run": True}
    preview = (await client.post("/v1/quarantine/release", json=body)).json()
    assert (preview["wanted"], [each["id"] for each in preview["sample"]]) == (3, [one, two, three])
    released = (await client.post("/v1/quarantine/release", json={"condition": str(one), "reason": "looked at"})).json()
    assert released["done"] == 1
    deleted = (
        await client.post("/v1/quarantine/delete", json={"condition": "quarantine=contentcheck", "limit": 1})
    ).json()
    assert deleted["done"] == 1
    sent = await client.post("/v1/quarantine/release", json={"condition": str(three), "to": ["ann@example.org"]})
    assert sent.json()["done"] == 1
    assert {row.id: row.status for row in factory.queue(one, two)} == {one: "DELIVER", two: "DELETE"}
    assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE recipientdomain = 'example.org'") == 1
    commands = factory.sql("SELECT verb, who, reason FROM pillarbox.audit ORDER BY id")
    assert [(row.verb, row.who) for row in commands] == [("release", "rita"), ("delete", "rita"), ("redirect", "rita")]
    assert commands[0].reason == "looked at"
    again = await client.post("/v1/quarantine/release", json={"condition": str(one)})
    assert (again.status_code, "not held" in again.json()["detail"]) == (409, True)
    # A reviewer decides, and undoes nothing.
    assert (await client.post(f"/v1/audit/{released['audit']}/undo", json={})).status_code == 403


async def test_only_its_reviewers_decide_in_a_quarantine_whatever_httpd_knows(api: Api, factory: Factory) -> None:
    """PostgreSQL refuses, also where smtpd's file does not say who the reviewers are."""
    close(factory, {"legal": ["lea"]})
    [held] = hold(factory, "legal")
    [open_] = hold(factory, "contentcheck")
    other = await api.caller("rita", "reviewer", kind="person")
    write = {"condition": "quarantine=legal"}
    for configured in (False, True):
        if configured:
            rules = {"quarantines": [{"id": "legal", "reviewers": ["lea"]}]}
            (api.system.folder / "httpd-rules.yaml").write_text(json.dumps(rules), encoding="utf-8")
        for verb in ("release", "delete"):
            refused = await other.post(f"/v1/quarantine/{verb}", json=write)
            assert refused.status_code == 403, refused.text
        assert (await other.get(f"/v1/quarantine/mail/{held}")).status_code == 403
        assert (await other.get(f"/v1/quarantine/mail/{held}/raw")).status_code == 403
    narrowed = await other.post("/v1/quarantine/release", json={"condition": "quarantine!=legal"})
    assert narrowed.json()["done"] == 1
    assert {row.id: row.status for row in factory.queue()} == {held: "HOLD", open_: "DELIVER"}
    hers = await api.caller("lea", "reviewer", kind="person")
    assert (await hers.post("/v1/quarantine/release", json=write)).json()["done"] == 1


async def test_held_mail_is_checked_again_a_portion_in_a_request_and_clean_mail_released(
    system: System, factory: Factory
) -> None:
    ids = hold(factory, "contentcheck", count=3)
    async with HttpPeer(verdict("no action", -1.5)) as peer:
        rules = {"policy": {"contentcheck": {"url": peer.url}}}
        async with Api(system, await system.httpd(smtpd=rules)) as api:
            client = await api.caller("rita", "reviewer", kind="person")
            body = {"condition": "quarantine=contentcheck", "limit": 2, "release": True, "reason": "new rules"}
            shown = (await client.post("/v1/quarantine/rescan", json={**body, "dry_run": True})).json()
            assert [(each["id"], each["action"], each["clean"]) for each in shown["data"]] == [
                (ids[0], "no action", True),
                (ids[1], "no action", True),
            ]
            assert (shown["audit"], shown["clean"], shown["done"], shown["next"]) == (None, 2, 0, str(ids[1]))
            assert {row.status for row in factory.queue()} == {"HOLD"}

            done = (await client.post("/v1/quarantine/rescan", json=body)).json()
            assert (done["clean"], done["done"], done["next"]) == (2, 2, str(ids[1]))
            assert [row.status for row in factory.queue(*ids)] == ["DELIVER", "DELIVER", "HOLD"]
            [audit] = await system.rows("SELECT who, verb, reason, done, finished IS NULL FROM audit")
            assert audit == ("rita", "rescan", "new rules", 2, False)
            rest = (await client.post("/v1/quarantine/rescan", json={**body, "after": int(done["next"])})).json()
            assert (rest["done"], rest["next"]) == (1, None)

            await system.rows("UPDATE principals SET roles = '{viewer}'")
            assert (await client.post("/v1/quarantine/rescan", json=body)).status_code == 403


async def test_without_a_content_check_rescan_says_what_is_missing(api: Api) -> None:
    client = await api.caller("rita", "reviewer", kind="person")
    refused = await client.post("/v1/quarantine/rescan", json={"all": True})
    assert refused.status_code == 409
    assert "httpd-rules.yaml: policy.contentcheck is not set" in refused.json()["detail"]


async def test_a_digest_is_sent_once_by_who_may_send(system: System, factory: Factory) -> None:
    hold(factory, "review")
    rules = {"quarantines": [{"id": "review", "notice": {"to": ["desk@example.com"], "sender": "a@example.com"}}]}
    async with Api(system, await system.httpd(smtpd=rules)) as api:
        client = await api.caller("rita", "reviewer", kind="person")
        [shown] = (await client.post("/v1/quarantine/digest", json={"dry_run": True})).json()
        assert (shown["quarantine"], shown["recipients"], shown["message"]) == ("review", 1, None)
        refused = await client.post("/v1/quarantine/digest", json={})
        assert (refused.status_code, "the role sender" in refused.json()["detail"]) == (403, True)
        unknown = await client.post("/v1/quarantine/digest", json={"quarantines": ["spma"]})
        assert (unknown.status_code, "allowed: review" in unknown.json()["detail"]) == (404, True)
        await system.rows("UPDATE principals SET roles = '{reviewer,sender}'")
        [sent] = (await client.post("/v1/quarantine/digest", json={})).json()
        [queued] = [row for row in factory.queue() if row.status == "DELIVER"]
        assert sent["message"] == str(queued.messages__id)
        [again] = (await client.post("/v1/quarantine/digest", json={})).json()
        assert again["message"] is None
