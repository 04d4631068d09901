"""test_not_durable — an aborted wait of COMMIT for the standby is not answered 250

Owns: proofs that an aborted wait for the synchronous standby is answered 451, for each way of committing a group; and
    that account mail is not taken for queued then.
See: shared/postgres/durable.py; PostgreSQL manual, "Synchronous Replication"; src/backend/replication/syncrep.c.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from collect.queue import Queue
from shared.errors import SpoolUnavailable
from shared.mail.message import Once
from shared.postgres import database
from shared.postgres.migrate import migrate
from tests.fixtures.daemons.submissions import SPOOL, recipient, running_spool, submission
from tests.fixtures.servers.postgres import LEAVES
from tests.fixtures.servers.standby import replicated
from tests.fixtures.waiting import eventually
from tests.integration.accounts.test_collect_queue import collecting, composer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shared.mail.message import Submission
    from shared.spool.spool import Spool
    from tests.fixtures.database.accounts import Accounts
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard
    from tests.fixtures.servers.standby import Pair

COLLECTS: Final = "collects elsewhere"
WAITING = "FROM pg_stat_activity WHERE application_name = %s AND wait_event = 'SyncRep'"
GROUPS: Final[dict[str, Callable[[], Submission]]] = {
    "alone, in one statement": lambda: submission(recipient("1")),
    "several rows, in one round trip": lambda: submission(*[recipient("1", str(n)) for n in range(4)]),
    "many rows, by COPY": lambda: submission(*[recipient("1", str(n)) for n in range(20)]),
}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A primary with a silent synchronous standby: no commit reaches it."""
    with asyncio.Runner() as runner:  # an asynchronous fixture would be made again for every test
        servers = replicated()
        found = runner.run(servers.__aenter__())
        try:
            migrate(found.primary, LEAVES)
            with psycopg.connect(found.standby, autocommit=True) as standby:
                standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
                standby.execute("SELECT pg_reload_conf()")
            gone = eventually(
                lambda: one(found, "SELECT count(*) FROM pg_stat_replication") == 0, "the standby is gone"
            )
            runner.run(gone)
            yield found
        finally:
            runner.run(servers.__aexit__(None, None, None))


def one(pair: Pair, text: str, *values: object) -> object:
    """The result of a statement on the primary, without waiting for the standby."""
    with psycopg.connect(pair.primary, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = local")
        row = connection.execute(text.encode(), values).fetchone()
        assert row is not None
        return row[0]


async def ended(pair: Pair, spool: Spool, made: Submission, how: str) -> BaseException:
    """The result of a submission with a COMMIT that waits for the standby until `how` ends the wait."""
    submitting = asyncio.create_task(spool.submit(made))
    await eventually(lambda: one(pair, f"SELECT count(*) {WAITING}", SPOOL) == 1, "the commit to wait for the standby")
    assert one(pair, f"SELECT {how}(pid) {WAITING}", SPOOL) is True
    [outcome] = await asyncio.gather(submitting, return_exceptions=True)
    assert isinstance(outcome, BaseException), "it was taken for committed"
    return outcome


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
@pytest.mark.parametrize("group", GROUPS)
async def test_an_aborted_wait_for_the_standby_is_not_a_commit(pair: Pair, heard: Heard, group: str, how: str) -> None:
    made = GROUPS[group]()
    async with running_spool(pair.primary) as spool:
        outcome = await ended(pair, spool, made, how)
    assert isinstance(outcome, SpoolUnavailable)
    # It is stored nevertheless: a repeated submission causes a duplicate.
    assert one(pair, "SELECT count(*) FROM pillarbox.queue WHERE messages__id = %s", made.id) == len(made.recipients)
    if how == "pg_cancel_backend":
        [said] = heard.all("spool.not_durable")
        assert (said["messages"], said["recipients"]) == (1, len(made.recipients))


async def test_the_warning_is_received_with_client_min_messages_error(pair: Pair, heard: Heard) -> None:
    name = one(pair, "SELECT current_user")
    with psycopg.connect(pair.primary, autocommit=True) as owner:
        owner.execute("SET synchronous_commit = local")
        owner.execute(f"ALTER ROLE {name} SET client_min_messages = error".encode())
        try:
            async with running_spool(pair.primary) as spool:
                for make in GROUPS.values():
                    await ended(pair, spool, make(), "pg_cancel_backend")
        finally:
            owner.execute(f"ALTER ROLE {name} RESET client_min_messages".encode())
    assert len(heard.all("spool.not_durable")) == len(GROUPS)


async def test_a_warning_of_a_trigger_refuses_no_mail(factory: Factory) -> None:
    factory.sql(
        """CREATE FUNCTION pillarbox.loud() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE WARNING 'an operator wants to know'; RETURN NULL; END $$"""
    )
    factory.sql(
        "CREATE TRIGGER loud AFTER INSERT ON pillarbox.messages FOR EACH STATEMENT EXECUTE FUNCTION pillarbox.loud()"
    )
    async with running_spool(factory.uri) as spool:
        for make in GROUPS.values():
            await spool.submit(make())


async def test_a_key_of_a_commit_whose_wait_was_aborted_is_not_answered_before_the_standby_has_it(pair: Pair) -> None:
    once = Once("application", "key 1", b"print")
    async with running_spool(pair.primary) as spool:
        await ended(pair, spool, submission(recipient("1"), once=once), "pg_cancel_backend")
        assert isinstance(
            await ended(pair, spool, submission(recipient("1"), once=once), "pg_cancel_backend"), SpoolUnavailable
        )


async def test_a_token_is_not_collected_before_its_mail_in_another_database_is_durable(
    pair: Pair, accounts: Accounts, heard: Heard
) -> None:
    """Neither when the commit that queues it warns, nor by the next batch, which finds the mail queued already."""
    accounts.add("ann")
    elsewhere = await database.open_pool(pair.primary, COLLECTS, 1)
    try:
        async with collecting(accounts.uri, accounts.schema, Queue(composer(), elsewhere)):
            for times in (1, 2):
                await eventually(
                    lambda: one(pair, f"SELECT count(*) {WAITING}", COLLECTS) == 1, "a commit waits for the standby"
                )
                assert one(pair, f"SELECT pg_cancel_backend(pid) {WAITING}", COLLECTS) is True
                said = (await heard.wait("collect.unavailable", times))[-1]
                assert "canceling wait for synchronous replication" in str(said["error"])
                [token] = accounts.sql("SELECT collected_at FROM tokens")
                assert token.collected_at is None, "taken for queued"
            assert one(pair, "SELECT count(*) FROM pillarbox.queue WHERE recipientlocalpart = 'ann'") == 1
    finally:
        await elsewhere.close()
