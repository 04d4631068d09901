"""test_retry_tests_a_dead_destination — after an outage `queue retry` delivers what would have waited an hour more

See: docs/how-to/operate/act-on-the-queue.md; docs/explanation/pacing.md, "Feedback".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.sink.server import Sink
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.database.operating import Pillarbox, write_config
from tests.fixtures.peers.free_port import free_port

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System


async def test_the_first_delivery_after_the_command_tests_the_relay(
    system: System, books: Books, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    smtpd = await system.smtpd()
    await system.worker(port, transport={"retry": {"intervals": ["1h"]}, "feedback": {"initial": 2}})
    await books.submit(smtpd, numbered(20))
    await system.until("SELECT count(*) = 20 FROM queue WHERE token IS NULL AND last_error IS NOT NULL")
    assert await system.value("SELECT count(*) > 0 FROM queue WHERE last_error LIKE 'waiting: % does not answer: %'")
    pillarbox = Pillarbox(write_config(tmp_path / "config", system.uri), capsys, "queue")
    async with Sink("127.0.0.1", port):
        await pillarbox.done("retry", "--all", "--yes")
        await system.until("SELECT count(*) > 0 FROM archive WHERE result = 'success'")
        await pillarbox.done("retry", "--all", "--yes")  # the others need not wait for their own turn
        await system.until_finished()
