"""test_settings — suspends, suppressions, dead letters, schedules, leaves and doctor by HTTP

Owns: proofs about httpd/routes/suspends.py, suppressions.py, deadletters.py, schedules.py, partitions.py and doctor.py
    over real connections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.database.operating import write_config

if TYPE_CHECKING:
    from tests.fixtures.daemons.api import Api
    from tests.fixtures.daemons.submit import Books


async def test_mail_is_suspended_and_goes_again(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    made = await client.post(
        "/v1/suspends", json={"destination": ["Example.COM"], "reason": "they ask us to wait", "for": "2h"}
    )
    assert (made.status_code, made.json()["selection"]) == (200, {"destination": ["example.com"]})
    [shown] = (await client.get("/v1/suspends")).json()
    assert (shown["id"], shown["who"], shown["reason"]) == (made.json()["id"], "olga", "they ask us to wait")
    assert 7100 < shown["seconds"] <= 7200
    assert (await client.delete(f"/v1/suspends/{shown['id']}")).json()["removed"] == [shown["id"]]
    assert (await client.delete(f"/v1/suspends/{shown['id']}")).status_code == 404
    every = await client.post("/v1/suspends", json={"all": True, "reason": "a storm"})
    assert every.json()["selection"] == {}
    assert (await client.delete("/v1/suspends")).json()["removed"] == [every.json()["id"]]
    wrong: list[dict[str, Any]] = [
        {"reason": "x"},
        {"all": True, "destination": ["example.com"], "reason": "x"},
        {"destination": ["not a domain"], "reason": "x"},
        {"all": True, "reason": "x", "for": "2"},
        {"all": True, "reason": "x", "for": "0s"},
        {"all": True},
        {"all": True, "reason": "two\r\nlines"},
    ]
    for body in wrong:
        assert (await client.post("/v1/suspends", json=body)).status_code == 422, body


async def test_addresses_are_suppressed_all_or_none_and_listed_page_by_page(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    body = {"targets": ["bob@example.com", "Example.NET", "carl@example.org"], "reason": "gone", "keep": "30d"}
    assert (await client.post("/v1/suppressions", json=body)).json()["suppressed"] == 3
    # Senders may read it, in a reply and in a notification: one line.
    lines = await client.post("/v1/suppressions", json={"targets": ["dora@example.com"], "reason": "gone\r\nhere"})
    assert (lines.status_code, lines.json()["detail"]) == (
        422,
        '"gone\\r\\nhere" is not a valid reason; allowed: up to 1000 printable characters',
    )
    wrong = await client.post("/v1/suppressions", json={"targets": ["dora@example.com", "@"]})
    assert (wrong.status_code, wrong.json()["detail"].split(":")[0]) == (422, "targets[1]")
    first = (await client.get("/v1/suppressions", params={"limit": "2"})).json()
    rest = (await client.get("/v1/suppressions", params={"limit": "2", "after": first["next"]})).json()
    assert [each["target"] for each in [*first["data"], *rest["data"]]] == [
        "bob@example.com",
        "carl@example.org",
        "example.net",
    ]
    assert rest["next"] is None
    assert (await client.delete("/v1/suppressions/Example.net")).status_code == 200
    assert (await client.delete("/v1/suppressions/example.net")).status_code == 404
    assert len((await client.get("/v1/suppressions")).json()["data"]) == 2


async def test_dead_letters_are_listed_page_by_page_and_sent_once_more(api: Api, books: Books) -> None:
    smtpd = await api.system.smtpd()
    for number in range(3):
        await books.submit(smtpd, numbered(number, box="permerror"))
    await api.system.worker(
        books.sink.port, maintenance={"interval": "500ms", "ahead": 1, "keep": {"deadletters": "1h"}}
    )
    await api.system.until("SELECT count(*) = 3 FROM archive")
    client = await api.caller("olga", "operator", kind="person")
    everything = (await client.get("/v1/deadletters")).json()
    pages = [(await client.get("/v1/deadletters", params={"limit": "2"})).json()]
    while after := pages[-1]["next"]:
        pages.append((await client.get("/v1/deadletters", params={"limit": "2", "after": after})).json())
    assert [each for page in pages for each in page["data"]] == everything["data"]
    assert [len(page["data"]) for page in pages] == [2, 1]
    [result] = {each["result"] for each in everything["data"]}
    assert (await client.get("/v1/deadletters/count", params={"since": "1h"})).json() == {result: 3}
    assert (await client.get("/v1/deadletters", params={"result": "none"})).status_code == 422
    assert (await client.get("/v1/deadletters/count", params={"domain": "Beech.example"})).json() == {result: 1}
    no_domain = await client.get("/v1/deadletters", params={"domain": "no domain"})
    assert (no_domain.status_code, no_domain.json()["detail"].partition(";")[0]) == (
        422,
        'domain: "no domain": bad domain',
    )
    id_ = everything["data"][0]["id"]
    shown = (await client.get(f"/v1/deadletters/{id_}")).json()
    assert (shown["id"], len(shown["attempts"])) == (id_, 1)

    assert (await client.post("/v1/deadletters/requeue", json={})).status_code == 422
    assert (await client.post("/v1/deadletters/requeue", json={"ids": ["4711"]})).status_code == 404
    assert (await client.post("/v1/deadletters/requeue", json={"ids": ["x"]})).status_code == 422
    named = {"ids": [str(id_)]}
    preview = await client.post("/v1/deadletters/requeue", json={**named, "dry_run": True})
    assert preview.json() == {"wanted": 1, "ids": [id_]}
    done = await client.post("/v1/deadletters/requeue", json=named)
    assert done.json() == {"wanted": 1, "requeued": 1, "gone": 0, "rest": 0}
    # PostgreSQL refuses one whose role was taken away while httpd still remembers the key.
    former = await api.caller("otto", "operator", kind="person")
    assert (await former.get("/v1/deadletters")).status_code == 200
    await api.system.rows("UPDATE principals SET roles = '{viewer}' WHERE name = 'otto'")
    others = {"ids": [str(each["id"]) for each in everything["data"][1:]]}
    assert (await former.post("/v1/deadletters/requeue", json=others)).status_code == 403
    again = await client.post("/v1/deadletters/requeue", json=others)
    assert again.json() == {"wanted": 2, "requeued": 2, "gone": 0, "rest": 0}
    assert (await client.post("/v1/deadletters/requeue", json=others)).json()["wanted"] == 0


async def test_schedules_are_added_listed_disabled_enabled_and_removed(api: Api) -> None:
    client = await api.caller("olga", "operator", "sender", kind="person")
    mail = {"from": "reports@example.com", "to": ["boss@example.net"], "message": "Subject: week\n\nAll is well.\n"}
    made = await client.post("/v1/schedules", json={"id": "weekly", "every": "0 9 * * mon", **mail})
    assert (made.status_code, made.json()["id"]) == (200, "weekly")
    [shown] = (await client.get("/v1/schedules")).json()
    assert (shown["cron"], shown["recipients"], shown["enabled"]) == ("0 9 * * mon", ["boss@example.net"], True)
    again = await client.post("/v1/schedules", json={"id": "weekly", "every": "0 9 * * mon", **mail})
    assert again.status_code == 409
    disabled = (await client.post("/v1/schedules/weekly/disable")).json()
    assert (disabled["id"], disabled["next"]) == ("weekly", None)
    assert [each["enabled"] for each in (await client.get("/v1/schedules")).json()] == [False]
    assert (await client.post("/v1/schedules/weekly/enable")).json()["next"] == made.json()["next"]
    assert (await client.delete("/v1/schedules/weekly")).status_code == 200
    assert (await client.delete("/v1/schedules/weekly")).status_code == 404
    later = await client.post("/v1/schedules", json={"id": "once", "at": "2999-12-24T18:00", **mail})
    [[message, due]] = await api.system.rows("SELECT messages__id, next_retry FROM queue")
    assert later.json()["message"] == str(message)
    assert due.isoformat().startswith("2999-12-24T18:00")
    for wrong in (
        {"id": "x", **mail},
        {"id": "x", "every": "daily", **mail},
        {"every": "0 9 * * mon", **mail},
        {"id": "x", "at": "2001-01-01", **mail},
        {"id": "x", "every": "0 9 * * mon", **mail, "to": ["nobody"]},
        {"id": "x", "every": "0 9 * * mon", **mail, "message": " "},
    ):
        assert (await client.post("/v1/schedules", json=wrong)).status_code == 422, wrong


async def test_leaves_and_findings_are_those_of_the_commands(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    without = await client.get("/v1/doctor")
    assert (without.status_code, "queued.yaml is not beside" in without.json()["detail"]) == (409, True)
    write_config(api.system.folder, api.system.uri)
    leaves = (await client.get("/v1/partitions")).json()
    assert leaves["faults"] == []
    assert sum(each["recipients"] for each in leaves["leaves"]) == 0
    [counted] = await api.system.rows("SELECT count(*) FROM pg_partition_tree('queue') WHERE isleaf")
    assert 0 < len(leaves["leaves"]) <= counted[0]
    plan = (await client.get("/v1/partitions/plan")).json()
    assert (plan["steps"] == []) is leaves["as_configured"]
    balance = (await client.get("/v1/partitions/balance", params={"leaves": 2})).json()
    assert (len(balance["leaves"]), sum(balance["weights"].values())) == (2, 0)
    many = await client.get("/v1/partitions/balance", params={"leaves": 999})
    assert (many.status_code, "999 leaves: not usable" in many.json()["detail"]) == (422, True)
    found = (await client.get("/v1/doctor")).json()
    checks = {each["check"]: each["verdict"] for each in found["findings"]}
    assert (checks["server.reached"], checks["schema.version"]) == ("ok", "ok")
    assert found["verdict"] == found["findings"][0]["verdict"]


async def test_settings_are_previewed_changed_with_a_reason_and_undone(api: Api) -> None:
    client = await api.caller("olga", "operator", kind="person")
    suspending = {"destination": ["example.com"], "reason": "they ask us to wait"}
    preview = (await client.post("/v1/suspends", json={**suspending, "dry_run": True})).json()
    assert (preview["verb"], preview["changed"], preview["sample"][0]["before"]) == ("suspend add", 1, None)
    assert (await client.get("/v1/suspends")).json() == (await client.get("/v1/audit")).json()["data"] == []
    made = (await client.post("/v1/suspends", json=suspending)).json()
    [before] = await api.system.rows("SELECT * FROM suspends")
    path = f"/v1/suspends/{made['id']}"
    assert (await client.delete(path, params={"dry_run": "true"})).json()["sample"][0]["after"] is None
    removed = (await client.delete(path, params={"reason": "a mistake"})).json()
    row = (await client.get(f"/v1/audit/{removed['audit']}")).json()
    assert (row["who"], row["verb"], row["reason"], row["done"]) == ("olga", "suspend remove", "a mistake", 1)
    undo = f"/v1/audit/{removed['audit']}/undo"
    shown = (await client.post(undo, json={"dry_run": True})).json()
    assert (shown["changed"], await api.system.rows("SELECT FROM suspends")) == (1, [])
    done = (await client.post(undo, json={"reason": "it was none"})).json()
    assert (done["wanted"], done["done"], done["skipped"], done["left"]) == (1, 1, 0, [])
    assert await api.system.rows("SELECT * FROM suspends") == [before]
    assert (await client.post(undo, json={})).status_code == 409
    assert (await client.delete("/v1/suspends", params={"reason": "a\nb"})).status_code == 422

    added = (await client.post("/v1/suppressions", json={"targets": ["a.example", "b.example"]})).json()
    await client.delete("/v1/suppressions/a.example", params={"reason": "a mistake"})
    left = (await client.post(f"/v1/audit/{added['audit']}/undo", json={})).json()
    assert (left["done"], left["left"]) == (1, ["a.example"])
    mail = {"from": "reports@example.com", "to": ["boss@example.net"], "message": "Subject: week\n\nAll is well.\n"}
    weekly = {"id": "weekly", "every": "0 9 * * mon", **mail}
    assert (await client.post("/v1/schedules", json={**weekly, "dry_run": True})).json()["changed"] == 1
    await client.post("/v1/schedules", json=weekly)
    assert (await client.post("/v1/schedules/weekly/disable", params={"dry_run": "true"})).json()["changed"] == 1
    gone = (await client.delete("/v1/schedules/weekly")).json()
    assert (await client.post(f"/v1/audit/{gone['audit']}/undo", json={})).json()["done"] == 1
    assert [each["enabled"] for each in (await client.get("/v1/schedules")).json()] == [True]


async def test_a_message_for_later_has_a_preview_that_queues_nothing(api: Api) -> None:
    client = await api.caller("olga", "operator", "sender", kind="person")
    mail = {"from": "reports@example.com", "to": ["boss@example.net"], "message": "Subject: week\n\nAll is well.\n"}
    once = await client.post("/v1/schedules", json={"at": "2999-12-24T18:00", **mail, "dry_run": True})
    assert (once.status_code, once.json()["recipients"]) == (200, ["boss@example.net"])
    assert await api.system.rows("SELECT FROM messages") == []
