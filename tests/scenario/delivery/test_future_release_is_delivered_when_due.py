"""test_future_release_is_delivered_when_due — delayed mail is sent when due, not before and not long after

Owns: mail submitted with HOLDFOR, through both daemons.
See: RFC 4865 section 4.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_mail_leaves_when_due_although_the_worker_polls_hourly(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, claim={"poll": "1h"})
    later = Sample("later@origin.example", ("later@ash.example",), b"Subject: later\r\n\r\nx\r\n")
    async with Dialogue(smtpd.address[1], ehlo=b"EHLO submitter.example") as client:
        assert (await client.ask(f"MAIL FROM:<{later.sender}> HOLDFOR=6".encode())).startswith("250")
        assert (await client.ask(f"RCPT TO:<{later.recipients[0]}>".encode())).startswith("250")
        assert (await client.data(later.content)).startswith("250")
    books.ledger.accept(later.sender, later.recipients[0], later.content)
    assert await system.rows("SELECT state FROM mail") == [("SCHEDULED",)]
    await books.submit(smtpd, numbered(3), sessions=1)
    await books.until_arrived(3)
    await books.until_arrived(4)
    await system.until_finished()
    assert str(books.account()) == "accepted=4 delivered=4 lost=0 duplicated=0 altered=0"
    # Its ts is when it was due.
    [(early, late)] = await system.rows("SELECT min(finished - ts), max(finished - ts) FROM archive")
    assert 0 <= early.total_seconds() <= late.total_seconds() < 600
    assert len(await worker.until_said("result.delivered", 4)) == 4
