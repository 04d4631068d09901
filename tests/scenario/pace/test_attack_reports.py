"""test_attack_reports — a flood of reports that anybody may send does not delay other mail

Owns: a running worker with an address for reports, and reports each of which names as many recipients and messages as
    are read. Before, each of them kept a connection to PostgreSQL for a thousand questions, behind one lock.
See: queued/reports/learn.py, queued/reports/suppression_screen.py; docs/how-to/deliver/suppression.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

REPORTS, HEALTHY = 800, 20


def report() -> bytes:
    """A bounce of a hundred recipients that returns five messages, none of which we know."""
    failures = "".join(
        f"Original-Recipient: rfc822; o{n}@example.com\r\nFinal-Recipient: rfc822; f{n}@example.com\r\n"
        "Action: failed\r\nStatus: 5.1.1\r\n\r\n"
        for n in range(99)
    )
    ids = "".join(f"Received: from app by mx.test with ESMTP\r\n\tid {uuid4()}; today\r\n" for _ in range(5))
    return (
        'Content-Type: multipart/report; boundary="x"\r\n\r\n'
        "--x\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; peer.example\r\n\r\n"
        f"{failures}--x\r\nContent-Type: text/rfc822-headers\r\n\r\n{ids}\r\n--x--\r\n"
    ).encode()


async def test_mail_is_delivered_beside_a_flood_of_reports(system: System, books: Books) -> None:
    """Before, eight hundred of them kept it for more than two minutes."""
    await system.worker(books.sink.port, suppression={"addresses": ["reports.example"], "evidence": "known"})
    enqueue = "SELECT pillarbox.enqueue('', ARRAY[%s], %s) FROM generate_series(1, %s)"
    await system.rows(enqueue, "a@reports.example", report(), REPORTS)
    await system.until("SELECT count(*) > 0 FROM archive")
    await system.rows(enqueue, "r@example.com", b"Subject: x\r\n\r\nx\r\n", HEALTHY)
    await system.until("SELECT count(*) = %s FROM archive WHERE recipientdomain = 'example.com'", HEALTHY)
    await system.until("SELECT count(*) = 0 FROM queue")
    assert await system.value("SELECT count(*) FROM suppressions") == 0
