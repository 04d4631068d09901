"""test_sign_deferred — mail that cannot be signed waits in the queue, and is not sent or bounced

See: queued/signing/sign.py; docs/how-to/deliver/sign-with-dkim.md, "When signing fails".
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from scripts.sink.server import Sink
from tests.fixtures.daemons.dispatching import dispatching
from tests.fixtures.daemons.signing import MESSAGE, key_files, rule, signer, verified
from tests.fixtures.heard import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

MINUTE = timedelta(minutes=1)


async def test_mail_without_a_current_key_waits_past_its_age_limit(
    factory: Factory, heard: Heard, tmp_path: Path
) -> None:
    ended = signer(rule(key_files(tmp_path, "ed", notafter="2020-01-01T00:00:00Z")))
    old = datetime.now(UTC) - timedelta(days=30)
    factory.rows(3, message=factory.message(MESSAGE), received=old, tries=40)
    async with Sink() as sink, dispatching(factory.uri, sink.port, MINUTE, signer=ended) as dispatcher:
        await heard.wait("result.deferred", 3)
        await until(lambda: dispatcher.inflight == 0, "both to be recorded")
        assert sink.received == []
    assert len(heard.all("sign.failed")) == 1
    reason = "cannot be signed: signing rule origin has no key for this time"
    assert {row.last_error for row in factory.queue()} == {reason}
    assert {row.status for row in factory.queue()} == {"DELIVER"}
    assert all(row.next_retry > row.last_retry for row in factory.queue())
    assert [(row.outcome, row.scope) for row in factory.attempts()] == [("deferred", "us")] * 3
    assert factory.archive() == []


async def test_with_onerror_unsigned_mail_leaves_unsigned(factory: Factory, heard: Heard, tmp_path: Path) -> None:
    ended = signer(rule(key_files(tmp_path, "ed", notafter="2020-01-01T00:00:00Z")), onerror="unsigned")
    factory.row(message=factory.message(MESSAGE))
    async with (
        Sink(keep_content=True) as sink,
        dispatching(factory.uri, sink.port, MINUTE, signer=ended) as dispatcher,
    ):
        await heard.wait("result.delivered")
        await until(lambda: dispatcher.inflight == 0, "it to be recorded")
    assert [record.content for record in sink.received] == [MESSAGE]
    assert [event["onerror"] for event in heard.all("sign.failed")] == ["unsigned"]


async def test_the_stored_body_is_unchanged(factory: Factory, heard: Heard, tmp_path: Path) -> None:
    message = factory.message(MESSAGE)
    factory.rows(2, message=message)
    kept = factory.row(message=message, due=timedelta(days=1))
    by = signer(rule(key_files(tmp_path, "rsa", "ed")))
    async with Sink(keep_content=True) as sink, dispatching(factory.uri, sink.port, MINUTE, signer=by) as dispatcher:
        await heard.wait("result.delivered", 2)
        await until(lambda: dispatcher.inflight == 0, "both to be recorded")
    [record] = sink.received
    assert record.content is not None
    assert verified(record.content) == 2
    assert record.content.endswith(MESSAGE)
    assert [row.id for row in factory.queue()] == [kept]
    assert bytes(factory.one("SELECT content FROM pillarbox.messages WHERE id = %(id)s", id=message)) == MESSAGE
