"""test_reviewer_after_a_failover — pages of the console that were loaded before a failover decide about no other mail

Owns: the proof, with real servers, that an id of an old page is not that of the mail which has it since a lagging
    standby was promoted.
See: sql/README.md, "Ids and timelines"; httpd/console/forms.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import psycopg
import pytest

from shared.postgres import migrate
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import path_of, post, signed_in, token_of
from tests.fixtures.daemons.system import System
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.standby import replicated

if TYPE_CHECKING:
    from pathlib import Path

_HELD = """
WITH made AS (
    INSERT INTO pillarbox.messages (id, size, content)
    SELECT gen_random_uuid(), 26, convert_to(%s, 'UTF8') RETURNING id
)
INSERT INTO pillarbox.queue (messages__id, recipientlocalpart, recipientdomain, size, status, metadata, next_retry)
SELECT id, 'ann', 'example.com', 26, 'HOLD', '{"_partid": "1", "_quarantineid": "spam"}', now() FROM made
RETURNING id
"""
_TIMELINE = re.compile(r'name="timeline" value="([^"]+)"')


async def hold(uri: str, subject: str) -> int:
    """A message on hold in this database: its id."""
    async with await psycopg.AsyncConnection.connect(uri, autocommit=True) as connection:
        cursor = await connection.execute(_HELD, [f"Subject: {subject}\r\n\r\nHi\r\n"])
        [id_] = await cursor.fetchone() or [0]
    return id_


@pytest.mark.slow
async def test_an_old_page_decides_about_no_mail_that_has_its_ids_now(tmp_path: Path) -> None:
    async with replicated() as pair:
        uri = f"{pair.both}&target_session_attrs=read-write"
        migrate.migrate(uri, LEAVES)
        system = System(uri, tmp_path)
        try:
            async with Api(system, await system.httpd()) as api:
                rita = await signed_in(api, "rita", "reviewer")
                await pair.part()
                read = await hold(uri, "harmless")
                old = (await rita.get(f"/console/held/{read}")).text
                timeline, token = _TIMELINE.search(old), token_of(old)
                assert "harmless" in old
                assert timeline

                await pair.lose_primary()
                await pair.promote()
                unread = await hold(uri, "malware")
                assert unread == read, "the standby that lagged gives the id again"

                preview = f"/console/decide?verb=release&id={read}"
                answer = await rita.get(f"{preview}&timeline={timeline[1]}")
                assert (answer.status_code, "another server has taken over" in answer.text) == (409, True)
                form = {"token": token, "verb": "release", "id": read, "reason": "harmless"}
                answer = await rita.post("/console/decide", data=form)
                assert (answer.status_code, "another server has taken over" in answer.text) == (403, True)
                answer = await rita.post(f"/console/held/{read}/rescan", data={"token": token, "release": "yes"})
                assert answer.status_code == 403

                # A page of the new server decides about the mail that it shows.
                assert "malware" in (await rita.get(preview)).text
                decided = await post(rita, preview, "/console/decide", verb="delete", id=unread, reason="malware")
                assert "1 recipient of 1 changed" in (await rita.get(path_of(decided))).text
        finally:
            await system.close()
        assert system.faults() == []
