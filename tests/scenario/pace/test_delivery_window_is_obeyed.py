"""test_delivery_window_is_obeyed — a transport delivers only in its windows, while others continue

Owns: the proof that a real worker obeys `windows`: mail outside of them waits for the next without counting a try.
See: tests/property/queued/test_windows.py for the calculation.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


def around(now: datetime, first: timedelta, last: timedelta) -> dict[str, str]:
    """A window of every day between two times near now."""
    return {"from": f"{now + first:%H:%M}", "to": f"{now + last:%H:%M}"}


async def test_mail_waits_for_its_window_and_other_mail_flows(system: System, books: Books) -> None:
    now = datetime.now(UTC)
    closed = around(now, timedelta(hours=2), timedelta(hours=3))
    opened = around(now, -timedelta(hours=1), timedelta(hours=1))
    rule = {"id": "night", "if": {"recipientdomain": ["night.example"]}, "then": {"transport": "night"}}
    smtpd = await system.smtpd(policy={"rules": [rule]})
    connection = {"server": "127.0.0.1", "port": books.sink.port}
    transports = [
        {"id": "default", "hostname": "queued.test", "connection": connection, "windows": [opened]},
        {"id": "night", "hostname": "queued.test", "connection": connection, "windows": [closed]},
    ]
    worker = await system.worker(books.sink.port, transports=transports)
    await books.submit(smtpd, numbered(10, ["night.example"]))
    await books.submit(smtpd, numbered(10, ["day.example"], first=10))
    await books.until_arrived(10)
    await system.until(
        "SELECT count(*) = 10 FROM queue WHERE transportid = 'night' AND retry_count = 0 AND token IS NULL"
        " AND last_error LIKE 'waiting: transport night delivers nothing until %%'"
        " AND next_retry > now() + interval '50 minutes'"
    )
    assert books.arrivals == 10

    await worker.stop()
    transports[1]["windows"] = [opened]
    await system.worker(books.sink.port, "later", transports=transports)
    await system.rows("UPDATE queue SET next_retry = now()")  # the window has opened
    await books.until_arrived(20)
    await system.until_finished()
