"""test_queue — queued mail by HTTP: listed page by page, changed with preview, audit and undo, within limits

Owns: proofs about httpd/routes/queue.py and httpd/routes/audit.py over real connections.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.fixtures.daemons.api import Api
from tests.fixtures.database.operating import write_config
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

EXAMPLE = "recipientdomain=example.com"


async def done(client: httpx.AsyncClient, path: str, **body: Any) -> Any:
    """The answer to a request that acts."""
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_list_goes_on_where_its_page_ended_and_misses_nothing(api: Api, factory: Factory) -> None:
    ids = factory.rows(7)
    factory.rows(2, domain="example.net")
    client = await api.caller("ann", "viewer", kind="person")
    pages = [(await client.get("/v1/queue", params={"condition": EXAMPLE, "limit": "3"})).json()]
    while after := pages[-1]["next"]:
        query = {"condition": EXAMPLE, "limit": "3", "after": after}
        pages.append((await client.get("/v1/queue", params=query)).json())
    assert [[each["id"] for each in page["data"]] for page in pages] == [ids[:3], ids[3:6], ids[6:]]
    assert (await client.get("/v1/queue/count", params={"condition": EXAMPLE})).json() == {"recipients": 7}
    groups = (await client.get("/v1/queue/groups", params={"by": "recipientdomain"})).json()
    assert [(each["value"]["recipientdomain"], each["recipients"]) for each in groups] == [
        ("example.com", 7),
        ("example.net", 2),
    ]
    [everything, largest, _] = (await client.get("/v1/queue/shape")).json()
    assert (everything["domain"], everything["total"], largest["domain"]) == (None, 9, "example.com")
    [shown] = (await client.get(f"/v1/queue/{ids[0]}")).json()
    assert (shown["state"], shown["header"]["Subject"]) == ("ACTIVE", "test")
    [received, now] = (await client.get(f"/v1/queue/{ids[0]}/trace", params={"limit": 2})).json()
    assert (received["event"], now["id"]) == ("received", ids[0])


async def test_a_change_is_previewed_made_audited_and_undone(api: Api, factory: Factory) -> None:
    ids = factory.rows(3)
    other = factory.row(domain="example.net")
    client = await api.caller("olga", "operator", kind="person")
    wanted = {"condition": EXAMPLE, "reason": "their server loses mail"}
    preview = await done(client, "/v1/queue/hold", **wanted, dry_run=True)
    assert (preview["wanted"], [each["id"] for each in preview["sample"]]) == (3, ids)
    assert not factory.sql("SELECT FROM pillarbox.audit")

    held = await done(client, "/v1/queue/hold", **wanted)
    assert (held["done"], held["skipped"], held["gone"], held["next"], held["rest"]) == (3, 0, 0, None, 0)
    assert {row.id for row in factory.queue() if row.status == "HOLD"} == set(ids)
    row = (await client.get(f"/v1/audit/{held['audit']}")).json()
    assert (row["who"], row["verb"], row["reason"]) == ("olga", "hold", wanted["reason"])
    assert (row["condition"], row["done"], row["finished"] is not None) == (EXAMPLE, 3, True)
    [listed] = (await client.get("/v1/audit")).json()["data"]
    assert listed == row

    path = f"/v1/audit/{held['audit']}/undo"
    assert await done(client, path, dry_run=True) == {"wanted": 3, "verb": "hold"}
    assert (await done(client, path, reason="it works again"))["done"] == 3
    assert {row.id for row in factory.queue() if row.status == "DELIVER"} == {*ids, other}
    again = await client.post(path, json={})
    assert (again.status_code, "was undone at" in again.json()["detail"]) == (409, True)
    assert (await client.post("/v1/audit/4711/undo", json={})).status_code == 404


async def test_each_verb_changes_what_it_says(api: Api, factory: Factory) -> None:
    client = await api.caller("olga", "operator", kind="person")
    nowhere = await client.post("/v1/queue/move", json={"all": True, "partition": "2"})  # no smtpd.yaml says which
    assert (nowhere.status_code, "configuration file" in nowhere.json()["detail"]) == (503, True)
    write_config(api.system.folder, api.system.uri)
    (api.system.folder / "queued.yaml").write_text('{"transports": [{"id": "default"}, {"id": "slow"}]}')
    waiting, held = factory.row(), factory.row(status="HOLD")
    await done(client, "/v1/queue/priority", condition=str(waiting), priority=-5)
    await done(client, "/v1/queue/delay", condition=str(waiting), **{"for": "2h"})
    await done(client, "/v1/queue/move", condition=str(waiting), transport="slow", partition="2")
    [row] = factory.queue(waiting)
    assert (row.priority, row.transportid, row.partid) == (-5, "slow", "2")
    assert row.next_retry > datetime.now(UTC) + timedelta(hours=1)
    await done(client, "/v1/queue/retry", condition=str(waiting))
    assert factory.one("SELECT next_retry <= now() FROM pillarbox.queue WHERE id = %(id)s", id=waiting)
    await done(client, "/v1/queue/copy", condition=str(held), to="postmaster@example.org")
    assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE recipientdomain = 'example.org'") == 1
    await done(client, "/v1/queue/release", condition=str(held))
    await done(client, "/v1/queue/bounce", condition=str(held))
    await done(client, "/v1/queue/delete", condition=f"{waiting}")
    states = {row.id: row.status for row in factory.queue(waiting, held)}
    assert states == {waiting: "DELETE", held: "BOUNCE"}
    unknown = await client.post("/v1/queue/move", json={"all": True, "transport": "fast"})
    assert unknown.status_code == 422
    assert "fast" in unknown.json()["detail"]
    assert unknown.json()["detail"].endswith("is not a transport of queued.yaml; allowed: default, slow")


async def test_what_cannot_be_done_is_refused_before_anything_is_changed(api: Api, factory: Factory) -> None:
    id_ = factory.row()
    client = await api.caller("olga", "operator", kind="person")
    wrong = await client.get("/v1/queue", params={"condition": "state=HOLD recipientdomian=example.com"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "condition")
    reason, text, caret = wrong.json()["detail"].splitlines()
    assert "recipientdomain" in reason
    assert text[caret.index("^") :].startswith("recipientdomian")
    for body, status in (
        ({}, 422),  # no condition
        ({"after": 0}, 422),
        ({"condition": "id>0 )"}, 422),
        ({"condition": "4711"}, 404),
        ({"all": True, "conditoin": "x"}, 422),
        ({"all": "yes"}, 422),
        ({"all": True, "limit": 0}, 422),
        ({"all": True, "reason": "a\nb"}, 422),
    ):
        refused = await client.post("/v1/queue/hold", json=body)
        assert refused.status_code == status, (body, refused.text)
        assert refused.headers["content-type"] == "application/problem+json"
    factory.move([id_], "HOLD")
    held = await client.post("/v1/queue/retry", json={"condition": str(id_)})
    assert (held.status_code, held.json()["detail"]) == (
        409,
        f"retry: {id_} is HOLD; allowed: mail that is not on hold, deleted or bounced",
    )
    for path in ("?limit=100000", "?after=-1", "/groups?by=x", "/nothing"):
        assert (await client.get(f"/v1/queue{path}")).status_code == 422
    assert (await client.get("/v1/queue/4711")).status_code == 404
    assert not factory.sql("SELECT FROM pillarbox.audit")


async def test_a_change_stops_in_time_and_the_same_with_after_does_the_rest(system: System, factory: Factory) -> None:
    factory.rows(2500)
    async with Api(system, await system.httpd(timeout={"change": "1ms"})) as api:
        client = await api.caller("olga", "operator", kind="person")
        body: dict[str, Any] = {"condition": EXAMPLE, "priority": 3, "limit": 2100}
        parts: list[dict[str, Any]] = []
        while not parts or parts[-1]["next"] is not None:
            parts.append(await done(client, "/v1/queue/priority", **body))
            body |= {"after": int(parts[-1]["next"] or 0), "limit": parts[-1]["rest"] or 1}
        expected = [(1000, 1100, 0), (1000, 100, 0), (100, 0, 0)]
        assert [(each["done"], each["rest"], each["gone"]) for each in parts] == expected
        assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE priority = 3") == 2100
        shown = (await client.get(f"/v1/audit/{parts[0]['audit']}")).json()
        assert (shown["done"], shown["finished"]) == (1000, None)
        path = f"/v1/audit/{parts[0]['audit']}/undo"
        undone = await done(client, path)
        assert (undone["done"], undone["next"] is None) == (1000, False)
        assert (await done(client, path, after=int(undone["next"])))["next"] is None
        assert factory.one("SELECT count(*) FROM pillarbox.queue WHERE priority = 3") == 1100


async def test_a_request_that_is_killed_leaves_exact_counts(system: System, factory: Factory) -> None:
    ids = factory.rows(1200)
    async with Api(system, await system.httpd(timeout={"query": "3m"})) as api:
        client = await api.caller("olga", "operator", kind="person")
        with factory.another("in the way") as session:
            session.execute("SELECT FROM pillarbox.queue WHERE id = %s FOR UPDATE", (ids[1100],))
            body = {"condition": EXAMPLE, "priority": 3}
            asked = asyncio.create_task(client.post("/v1/queue/priority", json=body))
            await eventually(lambda: factory.waiting("pillarbox httpd"), "the second batch waits for a lock")
            api.daemon.signal(signal.SIGKILL)
            with pytest.raises(httpx.TransportError):
                await asked
            await api.daemon.ended()
        await system.until("SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'pillarbox httpd'")
    [row] = factory.sql("SELECT done, skipped, finished FROM pillarbox.audit")
    assert (row.done, row.skipped, row.finished) == (1000, 0, None)
    assert [each.id for each in factory.queue() if each.priority == 3] == ids[:1000]


async def test_a_statement_that_takes_too_long_is_cancelled_and_says_so(system: System, factory: Factory) -> None:
    factory.rows(3)
    async with Api(system, await system.httpd(timeout={"query": "2s"})) as api:
        client = await api.caller("olga", "operator", kind="person")
        with factory.another() as session:
            session.execute("LOCK TABLE pillarbox.queue IN ACCESS EXCLUSIVE MODE")
            late = await client.get("/v1/queue")
        assert (late.status_code, "timeout.query" in late.json()["detail"]) == (503, True)
        assert late.headers["retry-after"]
        assert (await client.get("/v1/queue")).status_code == 200


@pytest.mark.parametrize(("refusal", "status"), [("25006", 503), ("53100", 503), ("XX000", 503), ("42501", 403)])
async def test_trouble_of_postgresql_that_may_pass_is_503(
    api: Api, factory: Factory, refusal: str, status: int
) -> None:
    """A read-only server, a full disk, a partition that was dropped meanwhile; but not a right that is missing."""
    factory.row()
    client = await api.caller("olga", "operator", kind="person")
    factory.sql(f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
            $$BEGIN RAISE EXCEPTION USING ERRCODE = '{refusal}', MESSAGE = 'not now'; END$$;
        CREATE TRIGGER refuse BEFORE INSERT ON pillarbox.audit EXECUTE FUNCTION refuse()
    """)
    answer = await client.post("/v1/queue/hold", json={"all": True, "reason": "their server loses mail"})
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status == 503)
    assert [row.status for row in factory.queue()] == ["DELIVER"]
    if status == 503:
        [line] = api.daemon.said("request.unavailable")
        assert "not now" in line["error"]
