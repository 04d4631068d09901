"""test_collect_queue — tokens become queued mail, once, in the same database and in another

See: sql/accounts/README.md, "Collecting".
"""

from __future__ import annotations

import asyncio
import email
import email.policy
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from collect.batch import Pace
from collect.collector import Collector
from collect.message import Composer
from collect.queue import Queue
from collect.templates import Templates
from collect.token import Signer
from collect.wake import listen
from shared.config.collect.settings import AccountMail
from shared.postgres import account_schema
from shared.postgres import database as door
from shared.postgres.queries import filled_query, numbered, query
from shared.security.account_token import verify
from tests.fixtures.database.plans import nodes, rows_read
from tests.fixtures.waiting import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from collect.message import Message
    from tests.fixtures.database.accounts import Accounts
    from tests.fixtures.heard import Heard

_KEY: Final = bytes.fromhex("cafebabe" * 8)
_MAIL: Final = AccountMail(
    sender="accounts@example.com",
    name="Example, accounts",
    activate="https://www.example.com/activate?token={token}",
    recover="https://www.example.com/recover?token={token}",
)


def composer(templates: Path | None = None, installation: str = "test") -> Composer:
    """Makes mail from these templates, ours by default."""
    return Composer(_MAIL, Templates(templates, "en"), Signer(_KEY, "2026-11"), installation)


@asynccontextmanager
async def collecting(
    uri: str, schema: str, output: Queue, *, least: int = 10, wait: float = 0.0, poll: float = 60.0
) -> AsyncIterator[Collector]:
    """A collector that runs for the block."""
    collector = Collector(uri, account_schema.quoted(schema), Pace(least, 100, wait), poll, output)
    parts = [
        asyncio.create_task(collector.run()),
        asyncio.create_task(listen(uri, "token_insert", collector.due, collector.missed)),
    ]
    try:
        yield collector
        assert not parts[0].done(), parts[0]
    finally:
        collector.stop()
        async with asyncio.timeout(PATIENCE):
            await collector.drained()
        for each in parts:
            each.cancel()
        await asyncio.gather(*parts, return_exceptions=True)


def queued(uri: str) -> list[Any]:
    """Every queued message and its recipient, in order."""
    with psycopg.connect(uri, autocommit=True) as connection:
        return connection.execute(
            """SELECT recipientlocalpart || '@' || recipientdomain, content, priority, jobid
                 FROM pillarbox.queue q JOIN pillarbox.messages m ON m.id = q.messages__id ORDER BY q.id"""
        ).fetchall()


def parsed(content: bytes) -> Any:
    """A message as a mail program reads it."""
    return email.message_from_bytes(content, policy=email.policy.default)


async def test_mail_of_a_token_is_queued_with_its_link_and_code(accounts_beside_queue: Accounts) -> None:
    accounts = accounts_beside_queue
    accounts.add("ann", login="ann<script>")
    token = accounts.sql("SELECT secret, code, expires_at FROM tokens")[0]
    async with collecting(accounts.uri, accounts.schema, Queue(composer())):
        await eventually(lambda: queued(accounts.uri), "the mail is queued")
    [(recipient, content, priority, jobid)] = queued(accounts.uri)
    assert recipient == "ann@example.com"
    message = parsed(bytes(content))
    assert (message["From"], message["Subject"], priority, jobid) == (
        '"Example, accounts" <accounts@example.com>',
        "Activate your account",
        0,
        "account activation",
    )
    assert message["Auto-Submitted"] == "auto-generated"
    text, html = (message.get_body((kind,)).get_content() for kind in ("plain", "html"))
    [signed] = re.findall(r"token=(\S+)", text)
    found = verify({"2026-11": _KEY}, "/activate", signed)
    assert found is not None
    assert (found.secret, found.expires_at) == (bytes(token.secret), token.expires_at)
    assert token.code in text
    assert signed in html
    assert "<script>" in text
    assert "<script>" not in html


async def test_recovery_comes_before_activation_and_is_urgent(accounts_beside_queue: Accounts) -> None:
    accounts = accounts_beside_queue
    for number in range(3):
        accounts.add(f"new{number}")
    accounts.add_active("known")
    accounts.sql("SELECT request_recovery('known@example.com')")
    async with collecting(accounts.uri, accounts.schema, Queue(composer()), least=2):
        await eventually(lambda: len(queued(accounts.uri)) == 4, "all are queued")
    found = queued(accounts.uri)
    assert [row[0].partition("@")[0] for row in found] == ["known", "new0", "new1", "new2"]
    assert [row[2] for row in found] == [5, 0, 0, 0]


async def test_what_is_rolled_back_sends_nothing_and_marks_nothing(accounts_beside_queue: Accounts) -> None:
    accounts = accounts_beside_queue

    class Failing(Queue):
        async def hand_over(self, connection: Any, tokens: Any) -> None:
            await super().hand_over(connection, tokens)
            failed.set()
            raise psycopg.OperationalError("cut before COMMIT")

    failed = asyncio.Event()
    accounts.add()
    async with collecting(accounts.uri, accounts.schema, Failing(composer())), asyncio.timeout(PATIENCE):
        await failed.wait()
    assert queued(accounts.uri) == []
    assert accounts.one("SELECT collected_at IS NULL FROM tokens")
    async with collecting(accounts.uri, accounts.schema, Queue(composer())):
        await eventually(lambda: len(queued(accounts.uri)) == 1, "it is queued then")


async def test_between_two_databases_a_repeated_hand_over_is_one_message(
    accounts: Accounts, database: str, tmp_path: Path
) -> None:
    class CutBetweenCommits(Queue):
        async def hand_over(self, connection: Any, tokens: Any) -> None:
            await super().hand_over(connection, tokens)
            if not cut:
                cut.append(len(tokens))
                raise psycopg.OperationalError("the queue has committed, the accounts have not")

    cut: list[int] = []
    pool = await door.open_pool(database, "test", 1)
    try:
        for number in range(5):
            accounts.add(f"user{number}")
        async with collecting(accounts.uri, "public", CutBetweenCommits(composer(), pool)):
            await eventually(
                lambda: accounts.one("SELECT count(*) = 0 FROM tokens WHERE collected_at IS NULL"), "all are collected"
            )
    finally:
        await pool.close()
    assert cut == [5]
    assert len(queued(database)) == 5


async def test_a_token_known_with_other_templates_is_not_queued_twice(
    accounts: Accounts, database: str, tmp_path: Path, heard: Heard
) -> None:
    other = folder(tmp_path, "Another subject")
    pool = await door.open_pool(database, "test", 1)
    try:
        accounts.add()
        async with collecting(accounts.uri, "public", Queue(composer(), pool)):
            await eventually(lambda: len(queued(database)) == 1, "it is queued")
        accounts.sql("ALTER TABLE tokens DISABLE TRIGGER USER; UPDATE tokens SET collected_at = NULL")  # a crash
        async with collecting(accounts.uri, "public", Queue(composer(other), pool)):
            await heard.wait("collect.known")
    finally:
        await pool.close()
    assert len(queued(database)) == 1


async def test_a_refused_token_stops_no_other(accounts_beside_queue: Accounts, heard: Heard) -> None:
    accounts = accounts_beside_queue
    for name in ("one", "two", "three"):
        accounts.add(name)
    accounts.add("bad", email="a..b@example.com")
    accounts.add("worse", email=f"{'x' * 65}@example.com")
    async with collecting(accounts.uri, accounts.schema, Queue(composer())):
        await eventually(
            lambda: accounts.one("SELECT count(*) = 0 FROM tokens WHERE collected_at IS NULL"), "all are collected"
        )
    assert sorted(row[0] for row in queued(accounts.uri)) == ["one@example.com", "three@example.com", "two@example.com"]
    assert sorted(each["token"] for each in heard.all("collect.refused")) == [4, 5]


async def test_an_error_of_our_own_marks_no_token(
    accounts_beside_queue: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a token that is refused, so that each is handed over by itself."""

    class TwoColumnsOfOneName(Queue):
        async def _enqueue(self, connection: door.Connection, messages: Sequence[Message]) -> None:
            monkeypatch.setattr(door, "query", lambda _: "SELECT 1 AS id, 2 AS id")
            await door.fetch(connection, "token_enqueue")

    accounts = accounts_beside_queue
    accounts.add("bad", email="a..b@example.com")
    accounts.add("one")
    output = TwoColumnsOfOneName(composer())
    collector = Collector(accounts.uri, account_schema.quoted(accounts.schema), Pace(10, 100, 0), 60.0, output)
    with pytest.raises(TypeError, match="duplicate"):
        async with asyncio.timeout(60):
            await collector.run()
    assert accounts.one("SELECT count(*) FROM tokens WHERE collected_at IS NOT NULL") == 0


async def test_the_account_s_language_chooses_the_templates(accounts_beside_queue: Accounts, tmp_path: Path) -> None:
    accounts = accounts_beside_queue
    texts = folder(tmp_path, "Welcome")
    for language, subject in (("de", "Willkommen"), ("pt-BR", "Bem-vindo")):
        folder(tmp_path, subject, language)
    for name, language in (("a", "de-AT"), ("b", "pt-br"), ("c", "fr"), ("d", "pt")):
        accounts.add(name, language=language)
    async with collecting(accounts.uri, accounts.schema, Queue(composer(texts))):
        await eventually(lambda: len(queued(accounts.uri)) == 4, "all are queued")
    assert [parsed(bytes(row[1]))["Subject"] for row in queued(accounts.uri)] == [
        "Willkommen",
        "Bem-vindo",
        "Welcome",
        "Welcome",
    ]


async def test_collecting_is_planned_once(accounts_beside_queue: Accounts) -> None:
    """For the values of each batch it took as long to plan as to run."""

    class Asking(Queue):
        async def hand_over(self, connection: Any, tokens: Any) -> None:
            text = """SELECT sum(custom_plans)::integer, sum(generic_plans)::integer FROM pg_prepared_statements
                       WHERE statement LIKE '%SKIP LOCKED%'"""
            plans.append(await (await connection.execute(text)).fetchone())
            await super().hand_over(connection, tokens)

    accounts = accounts_beside_queue
    plans: list[tuple[int, int]] = []
    for number in range(3):
        accounts.add(f"user{number}")
    async with collecting(accounts.uri, accounts.schema, Asking(composer()), least=1):
        await eventually(lambda: len(queued(accounts.uri)) == 3, "all are queued")
    assert plans
    assert [custom for custom, _ in plans] == [0] * len(plans)
    assert plans[-1][1] == len(plans)


def test_counting_what_waits_reads_no_token_that_was_collected(accounts_beside_queue: Accounts) -> None:
    accounts = accounts_beside_queue
    accounts.sql("INSERT INTO accounts (email, login) SELECT n || '@example.com', n FROM generate_series(1, 4000) AS n")
    accounts.sql("ALTER TABLE tokens DISABLE TRIGGER USER; UPDATE tokens SET collected_at = 1 WHERE id <= 2000")
    accounts.sql("ANALYZE accounts, tokens")
    accounts.sql(query("connection_walk"))
    text, _ = numbered(filled_query("token_waiting", schema=accounts.schema))
    accounts.sql(f"PREPARE asked AS {text.decode()}")
    [[[plan]]] = accounts.sql("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE asked (10)")
    assert max(map(rows_read, nodes(plan["Plan"]))) <= 10


async def test_polling_finds_tokens_without_a_notification(accounts_beside_queue: Accounts) -> None:
    accounts = accounts_beside_queue
    accounts.sql("ALTER TABLE tokens DISABLE TRIGGER after_token_inserted")
    async with collecting(accounts.uri, accounts.schema, Queue(composer()), poll=0.2):
        accounts.add("early")
        await eventually(lambda: len(queued(accounts.uri)) == 1, "the first is queued")
        accounts.add("later")
        await eventually(lambda: len(queued(accounts.uri)) == 2, "the second, by the poll")


def folder(place: Path, subject: str, language: str = "en") -> Path:
    """A folder of templates with this subject; the place of all languages."""
    (place / language).mkdir()
    for action in ("activation", "password_recovery"):
        for part, text in (("subject", subject), ("txt", "{{ link }}"), ("html", "<p>{{ link }}</p>")):
            (place / language / f"{action}.{part}").write_text(text, encoding="utf-8")
    return place
