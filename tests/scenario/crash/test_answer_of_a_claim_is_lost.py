"""test_answer_of_a_claim_is_lost — a worker that lives sends at once what a claim took whose answer never came

Owns: row 6b of the crash table, with a whole worker whose connections break between the claim's COMMIT and its answer.
See: queued/claiming/claim.py; tests/integration/claim/test_unanswered.py for each part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.daemons.submit import numbered
from tests.fixtures.peers.proxy import relaying

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

MESSAGES, EACH = 40, 10


@pytest.mark.slow
async def test_its_mail_does_not_wait_for_the_lease(system: System, books: Books) -> None:
    async with relaying(system.uri) as proxy:
        smtpd = await system.smtpd()
        worker = await system.worker(
            books.sink.port, environment={"database": {"uri": proxy.uri}}, claim={"lease": "1h"}
        )
        for first in range(0, MESSAGES, EACH):
            proxy.swallow = b".example"  # of a recipient: no other answer to a worker names one
            await books.submit(smtpd, numbered(EACH, first=first))
            await books.until_arrived(first + EACH)
            assert not proxy.swallow, "every claim was answered: the test proves nothing"
        await system.until_finished()
        assert books.account().clean
        tries = await system.rows("SELECT outcome, retry_count, count(*)::integer FROM attempts GROUP BY 1, 2")
        assert tries == [("delivered", 1, MESSAGES)], "the unanswered claim counts as a try"
        assert not worker.said("claim.expired")
        await worker.stop()
