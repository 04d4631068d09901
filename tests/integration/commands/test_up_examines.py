"""test_up_examines — what `pillarbox up` asks PostgreSQL before it starts: may a sink take this mail, who serves what

See: scripts/up/sink.py, scripts/up/unserved.py, scripts/up/api.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from operate import sign_in
from scripts.up import api, sink
from scripts.up.unserved import unserved
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.settings import SmtpdConfig
from shared.postgres import database as door

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.operating import Pillarbox
    from tests.fixtures.servers.postgres import ServerUnderTest


async def test_a_new_sink_does_not_take_mail_queued_before_it(
    database: str, server: ServerUnderTest, factory: Factory, tmp_path: Path, pillarbox: Pillarbox
) -> None:
    connection = await door.connect(database, "test")
    try:
        if server.kind == "container":
            why = await sink.why_not(connection, SmtpdConfig(), tmp_path)
            assert why == "the database is on another host, so its mail may come from other hosts"
            return
        assert await sink.why_not(connection, SmtpdConfig(), tmp_path) is None
        factory.row(partid="1")
        why = await sink.why_not(connection, SmtpdConfig(), tmp_path)
        assert why is not None
        assert why.startswith("the queue has mail from a time without a sink, and the sink would take it; ")
        async with sink.running(tmp_path):
            pass
        assert await sink.why_not(connection, SmtpdConfig(), tmp_path) is None
        sink.end(tmp_path)
        assert await sink.why_not(connection, SmtpdConfig(), tmp_path) == why
        [advice] = re.findall("`pillarbox queue (.*?)`", why)
        await pillarbox.done(*advice.split(), "--yes")
        assert factory.queue(), "its row stays until maintenance"
        assert await sink.why_not(connection, SmtpdConfig(), tmp_path) is None
    finally:
        await connection.close()


async def test_partitions_that_no_worker_serves_are_named(database: str) -> None:
    workers = [{"id": "a", "where": "metadata->>'_partid' = '1'"}, {"id": "b", "where": "metadata->>'_partid' > '4'"}]
    connection = await door.connect(database, "test")
    try:
        [warning] = await unserved(connection, SmtpdConfig(), QueuedConfig.model_validate({"workers": workers}))
        assert warning.startswith("no worker serves partition 2, 3, 4, NULL: ")
        assert await unserved(connection, SmtpdConfig(), QueuedConfig()) == []
    finally:
        await connection.close()


async def test_a_terminal_gets_a_one_time_link_to_the_console_until_an_admin_can_sign_in(
    database: str, factory: Factory, tmp_path: Path
) -> None:
    (tmp_path / "httpd.yaml").write_text("{}")
    address = ("127.0.0.1", 8025)
    [plain] = await api.console(tmp_path, address, database, link=False)
    assert plain.startswith("the console: http://127.0.0.1:8025/console/ ")
    assert factory.sql("SELECT 1 FROM pillarbox.principals") == []
    said, shown = await api.console(tmp_path, address, database, link=True)
    assert said.endswith("choose a password for admin here, once:")
    connection = await door.connect(database, "test")
    try:
        token = shown.partition("http://127.0.0.1:8025/console/link?token=")[2]
        assert await sign_in.use_link(connection, token, "$argon2 of a test") == "admin"
    finally:
        await connection.close()
    assert await api.console(tmp_path, address, database, link=True) == ["the console: http://127.0.0.1:8025/console/"]
    (tmp_path / "httpd.yaml").write_text('{"console": {"enabled": false}}')
    assert await api.console(tmp_path, address, database, link=True) == []
