"""test_digest — reviewers decide from the digest: a link for each message, which works once and for its person

Owns: proofs about httpd/console/digest.py, the links of operate/quarantine/digest.py, and decision_links.
"""

from __future__ import annotations

import asyncio
import email
import re
from email.policy import SMTP
from typing import TYPE_CHECKING, Any, Final

from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import set_password
from tests.fixtures.database.operating import Pillarbox, write_config
from tests.fixtures.database.reviewing import hold

if TYPE_CHECKING:
    import pytest

    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

QUARANTINES: Final = [
    {
        "id": "spam",
        "notice": {
            "to": ["desk@example.com", "rita@example.com", "mary@example.com"],
            "sender": "pillarbox@example.com",
            "url": "https://mail.example.com/",
        },
    }
]


async def sent(system: System, factory: Factory, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """The text of each digest by its recipients, after one was sent by an operator."""
    config = write_config(system.folder / "digests", system.uri, quarantines=QUARANTINES)
    command = Pillarbox(config, capsys, "quarantine")
    await asyncio.to_thread(command.run, "digest", "--yes")
    rows = factory.sql(
        """SELECT string_agg(q.recipientlocalpart, ',' ORDER BY q.id) AS those, m.content
             FROM pillarbox.queue q JOIN pillarbox.messages m ON m.id = q.messages__id
            WHERE q.jobid = 'quarantine-digest' GROUP BY m.id"""
    )
    return {row.those: read(row.content) for row in rows}


def read(content: Any) -> str:
    """The text of a message."""
    return str(email.message_from_bytes(content, policy=SMTP).get_content()).replace("\r\n", "\n")


def links(text: str) -> list[str]:
    """The tokens of the links in a digest."""
    return re.findall(r"decide: https://mail\.example\.com/decide\?link=([\w-]{43})$", text, re.MULTILINE)


async def test_each_person_gets_links_of_its_own_and_others_get_none(
    system: System, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(factory, "spam", count=2)
    async with Api(system, await system.httpd()) as api:
        await set_password(api, "rita@example.com", "reviewer")
        await set_password(api, "mary@example.com", "reviewer", reviews=["legal"])
    texts = await sent(system, factory, capsys)
    assert {those: len(links(text)) for those, text in texts.items()} == {"desk,mary": 0, "rita": 2}
    assert "Each link works once, for 3d" in texts["rita"]
    kept = str(factory.sql("SELECT digest::text, principal FROM pillarbox.decision_links"))
    assert not any(token in kept for token in links(texts["rita"]))


async def test_looking_changes_nothing_and_a_decision_uses_the_link_up(
    system: System, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    message = factory.message(b"Subject: <b>pay</b>\r\n\r\nDear <i>Ann</i>\r\n")
    ids = hold(factory, "spam", count=2, message=message)
    # The console is not served, and its links work all the same.
    async with Api(system, await system.httpd()) as api:
        await set_password(api, "rita@example.com", "reviewer")
    tokens = links((await sent(system, factory, capsys))["rita"])
    async with Api(system, await system.httpd("closed", console={"enabled": False})) as api:
        client = await api.client()
        assert (await client.get("/console/")).status_code == 401
        for _ in range(3):
            page = await client.get(f"/decide?link={tokens[0]}")
            assert page.status_code == 200
            assert "&lt;b&gt;pay&lt;/b&gt;" in page.text
            assert "Dear &lt;i&gt;Ann" in page.text
        assert {row.status for row in factory.queue(*ids)} == {"HOLD"}
        form = {"link": tokens[0], "verb": "release"}
        foreign = await client.post("/decide", data=form, headers={"Origin": "https://evil.example"})
        assert foreign.status_code == 403
        both = await asyncio.gather(*(client.post("/decide", data=form) for _ in range(2)))
        assert sorted(answer.status_code for answer in both) == [200, 404]
        assert sorted(row.status for row in factory.queue(*ids)) == ["DELIVER", "HOLD"]
        assert "Sign in to undo it" in next(answer.text for answer in both if answer.status_code == 200)
        [audit] = factory.sql("SELECT who, verb, reason FROM pillarbox.audit")
        assert (audit.who, audit.verb, audit.reason) == ("rita@example.com", "release", "decided from the digest")
        assert (await client.get(f"/decide?link={tokens[0]}")).status_code == 404
        assert tokens[0] not in api.daemon.log

        # Somebody else has decided meanwhile, or the person reviews no more, or the link is too old.
        await api.system.rows("UPDATE principals SET reviews = '{legal}' WHERE name = 'rita@example.com'")
        assert (await client.get(f"/decide?link={tokens[1]}")).status_code == 403
        await api.system.rows("UPDATE principals SET reviews = NULL, disabled = true")
        assert (await client.get(f"/decide?link={tokens[1]}")).status_code == 404
        await api.system.rows("UPDATE principals SET disabled = false")
        factory.move([row.id for row in factory.queue(*ids) if row.status == "HOLD"], "DELETE")
        assert (await client.get(f"/decide?link={tokens[1]}")).status_code == 409
        await api.system.rows("UPDATE decision_links SET made = now() - interval '4 d', expires = now()")
        assert (await client.post("/decide", data={"link": tokens[1], "verb": "delete"})).status_code == 404
    async with Api(system, await system.httpd("without", console={"enabled": False, "links": False})) as api:
        assert (await (await api.client()).get("/decide?link=x")).status_code == 401


async def test_a_reviewer_who_runs_the_digest_makes_no_links_for_others(
    system: System, factory: Factory, capsys: pytest.CaptureFixture[str]
) -> None:
    hold(factory, "spam")
    async with Api(system, await system.httpd()) as api:
        await set_password(api, "rita@example.com", "reviewer", "sender")
    config = write_config(system.folder / "digests", system.uri, quarantines=QUARANTINES)
    command = Pillarbox(config, capsys, "quarantine")
    await asyncio.to_thread(command.run, "digest", "--yes", "--as", "rita@example.com")
    assert factory.sql("SELECT 1 FROM pillarbox.decision_links") == []
