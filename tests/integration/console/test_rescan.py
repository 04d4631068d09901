"""test_rescan — reviewers check a held message again in the console, and the audit has the verdict

Owns: proofs about `rescan` of httpd/console/quarantine.py and `one` of operate/quarantine/rescan.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.console import post, signed_in
from tests.fixtures.database.reviewing import hold
from tests.fixtures.peers.web.http_peer import HttpPeer, verdict

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import System
    from tests.fixtures.database.factory import Factory

_AUDIT = "SELECT who, verb, reason, wanted, done, skipped, argument, finished IS NULL FROM audit ORDER BY id"


async def test_a_message_is_checked_again_and_released_only_where_that_is_wanted(
    system: System, factory: Factory
) -> None:
    [held] = hold(factory, "contentcheck")
    [closed] = hold(factory, "legal")
    async with HttpPeer(verdict("no action", -1.5)) as peer:
        rules = {
            "policy": {"contentcheck": {"url": peer.url}},
            "quarantines": [{"id": "contentcheck"}, {"id": "legal", "reviewers": ["lea"]}],
        }
        async with Api(system, await system.httpd(smtpd=rules)) as api:
            client = await signed_in(api, "rita", "reviewer")
            page = f"/console/held/{held}"
            assert f'action="{page}/rescan"' in (await client.get(page)).text
            looked = await post(client, page, f"{page}/rescan", reason="new rules")
            assert (looked.status_code, "The content check says no action" in looked.text) == (200, True)
            assert "It is clean, and still held" in looked.text
            assert factory.queue(held)[0].status == "HOLD"
            done = await post(client, page, f"{page}/rescan", release="yes")
            assert "It is clean and released" in done.text
            assert factory.queue(held)[0].status == "DELIVER"
            said = {"verdict": "no action", "score": -1.5}
            assert await system.rows(_AUDIT) == [
                ("rita", "rescan", "new rules", 1, 0, 1, {"release": False, **said}, False),
                ("rita", "rescan", None, 1, 1, 0, {"release": True, **said}, False),
            ]
            gone = await post(client, "/console/account", f"{page}/rescan")
            assert (gone.status_code, "not held" in gone.text) == (409, True)
            refused = await post(client, "/console/account", f"/console/held/{closed}/rescan")
            assert refused.status_code == 403
            assert len(await system.rows(_AUDIT)) == 2
