"""test-commands — `pillarbox webhooks`, and what doctor says of endpoints

Owns: proofs about scripts/commands/webhooks.py, operate/webhooks, operate/doctor/webhooks.py and the queries of both.
"""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from standardwebhooks.webhooks import Webhook

from operate.doctor import webhooks as doctor
from operate.doctor.checks import Limits, Severity
from queued.webhooks import run
from scripts import cli
from shared.config.queued.webhooks import Webhooks
from shared.postgres import database as db
from tests.fixtures.heard import until
from tests.fixtures.queue.hooked import SECRET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.web.hooks import Hooks

    type Make = Callable[[], Awaitable[Hooks]]
    type Command = Callable[..., tuple[int, str, str]]

URL = "https://app.example.com/hook"


@pytest.fixture
def command(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `pillarbox webhooks`: its status, output and errors."""
    for file in ("smtpd.yaml", "queued.yaml"):
        (tmp_path / file).write_text(f"environment: {{database: {{uri: '{database}'}}}}\n")

    def call(verb: str, *words: str) -> tuple[int, str, str]:
        status = cli.main(["webhooks", verb, *words, "--config", str(tmp_path)])
        said = capsys.readouterr()
        return status, said.out, said.err

    return call


def state(command: Command) -> dict[str, Any]:
    _, out, _ = command("list", "--json")
    found: dict[str, Any] = json.loads(out)
    return found


def test_an_endpoint_is_added_with_a_secret_shown_once_and_listed_without(command: Command, factory: Factory) -> None:
    status, out, _ = command("add", "app", URL, "--event", "failed", "--event", "bounced", "--where", "user=shop")
    assert status == 0
    said, secret = out.splitlines()
    assert re.fullmatch(r"app is added; audit \d+; its secret, which is not shown again:", said)
    assert secret.startswith("whsec_")
    assert factory.one("SELECT secrets FROM pillarbox.webhooks") == [secret]
    found = state(command)
    assert (found["events"], found["condition"], found["state"]) == (["failed", "bounced"], "user=shop", "enabled")
    assert secret not in json.dumps(found)
    assert secret not in command("list")[1]


def test_changes_have_a_preview_an_audit_row_and_an_undo(
    command: Command, factory: Factory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def undo(audit: int) -> dict[str, Any]:
        assert cli.main(["queue", "undo", str(audit), "--yes", "--json", "--config", str(tmp_path)]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    def changed(verb: str, *words: str) -> int:
        audit: int = json.loads(command(verb, "app", *words, "--json")[1])["audit"]
        return audit

    def row() -> tuple[Any, ...]:
        [found] = factory.sql("SELECT url, events, secrets, state, reason FROM pillarbox.webhooks")
        return tuple(found)

    preview = json.loads(command("add", "app", URL, "--dry-run", "--json")[1])
    assert (preview["changed"], preview["sample"][0]["after"]["secrets"]) == (1, 1)
    assert factory.sql("SELECT FROM pillarbox.webhooks") == factory.sql("SELECT FROM pillarbox.audit") == []
    added = changed("add", URL, "--event", "failed", "--reason", "the shop asks")
    was = row()
    for verb, words in (("disable", ("--reason", "it is slow")), ("rotate", ()), ("remove", ())):
        preview = command(verb, "app", *words, "--dry-run")[1]
        assert "nothing was changed" in preview
        assert was[2][0] not in preview
        assert row() == was
        audit = changed(verb, *words)
        now = factory.sql("SELECT secrets, state FROM pillarbox.webhooks")
        assert [tuple(each) for each in now] != [(was[2], "enabled")]
        assert undo(audit)["done"] == 1
        assert row() == was
    # What happened while it was not there comes once more, by its time.
    [[again]] = factory.sql("SELECT until > again FROM pillarbox.webhook_cursors")
    assert again
    later = changed("disable")
    assert undo(added) | {"audit": 0} == {"audit": 0, "wanted": 1, "done": 0, "skipped": 1, "left": ["app"]}
    undo(later)
    rows = factory.sql("SELECT verb, reason, done FROM pillarbox.audit ORDER BY id")
    assert tuple(rows[0]) == ("webhooks add", "the shop asks", 1)
    assert tuple(rows[1]) == ("webhooks disable", "it is slow", 1)


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (("app", "ftp://x/"), "http:// or https://"),
        (("app", "https://user:pw@x/"), "without user, password"),
        (("app", "https://x:99999/"), "http:// or https://"),
        (("app", "https://[x]/"), "http:// or https://"),
        (("app", "https://:443/"), "http:// or https://"),
        (("a b", URL), "letters, digits"),
        (("app", URL, "--where", "state=HOLD"), "an event does not have it; allowed: id, message"),
        (("app", URL, "--where", "sendr=x"), "did you mean sender?"),
        (("app", URL, "--secret", "hunter2"), "not a secret; allowed: whsec_"),
        (("app", URL, "--secret", "whsec_ü"), "not a secret; allowed: whsec_"),
        (("app", URL, "--secret", "env:NO_SUCH_NAME"), "the variable is not set"),
    ],
)
def test_bad_input_is_one_clear_error(command: Command, factory: Factory, words: tuple[str, ...], allowed: str) -> None:
    status, _, error = command("add", *words)
    assert status != 0
    assert allowed in error
    assert "hunter2" not in error
    assert factory.sql("SELECT FROM pillarbox.webhooks") == []


def test_an_unknown_endpoint_and_one_of_the_file_are_refused(command: Command, factory: Factory) -> None:
    for verb in ("test", "enable", "disable", "rotate", "remove"):
        status, _, error = command(verb, "none")
        assert status != 0
        assert "endpoint 'none' does not exist" in error.replace('"', "'")
    command("add", "app", URL)
    assert "already" in command("add", "app", URL)[2]
    factory.sql("UPDATE pillarbox.webhooks SET origin = 'queued.yaml'")
    for verb in ("rotate", "remove"):
        assert "is in queued.yaml; allowed: change it there" in command(verb, "app")[2]
    assert command("disable", "app")[0] == 0
    assert "is not before" in command("replay", "app", "--since", "2100-01-01")[2]
    assert "is not a time" in command("replay", "app", "--since", "yesterday")[2]


async def test_a_test_is_sent_and_the_answer_printed(command: Command, hooks: Make) -> None:
    taker = await hooks()
    [secret] = (await asyncio.to_thread(command, "add", "app", taker.url, "--private"))[1].splitlines()[1:]
    status, out, _ = await asyncio.to_thread(command, "test", "app")
    assert (status, out.split(" evt_")[0]) == (0, "app: took the event")
    assert Webhook(secret).verify(taker.requests[0].body, taker.requests[0].headers)["type"] == "test"
    taker.answer = "500 Oops"
    assert (await asyncio.to_thread(command, "test", "app"))[:2] == (1, "app: answered 500\n")
    new = (await asyncio.to_thread(command, "rotate", "app"))[1].splitlines()[1]
    await asyncio.to_thread(command, "test", "app")
    for each in (new, secret):  # the old one signs as well, until the next rotation
        Webhook(each).verify(taker.requests[-1].body, taker.requests[-1].headers)


async def test_a_running_worker_replays_and_takes_up_an_endpoint_that_was_paused(
    command: Command, factory: Factory, database: str, hooks: Make
) -> None:
    taker = await hooks()
    words = ("app", taker.url, "--private", "--event", "held", "--batch", "10")
    await asyncio.to_thread(command, "add", *words)
    pool = await db.open_pool(database, "webhooks", 4)
    running = asyncio.create_task(run.WebhookTask(pool, "one", Webhooks.model_validate({})).run())
    try:
        rows = factory.rows(3, status="HOLD")
        await until(lambda: len(taker.taken) == 3, "the events")
        await asyncio.to_thread(command, "replay", "app", "--since", "1h")
        await until(lambda: len(taker.taken) == 6, "the events once more")
        assert [e["id"] for e in taker.taken[:3]] == [e["id"] for e in taker.taken[3:]]
        assert [e["data"]["id"] for e in taker.taken[3:]] == rows
        taker.answer = "500 Oops"
        late = factory.row(status="HOLD")
        await until(lambda: factory.one("SELECT tries FROM pillarbox.webhook_cursors"), "the failure")
        taker.answer = "200 OK"
        taker.requests.clear()
        factory.sql("UPDATE pillarbox.webhook_cursors SET due = now() + interval '1 day'")
        await asyncio.to_thread(command, "enable", "app")
        await until(lambda: [e["data"]["id"] for e in taker.taken] == [late], "the event that waited")
        await asyncio.to_thread(command, "disable", "app", "--reason", "moving")
        await asyncio.to_thread(command, "remove", "app")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await pool.close()


def test_skipping_forgets_what_has_happened(
    command: Command, factory: Factory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    command("add", "app", URL, "--secret", "env:HOOK_SECRET")
    before = factory.one("SELECT pg_snapshot_xmax(snapshot)::text::bigint FROM pillarbox.webhook_cursors")
    factory.row()
    command("enable", "app", "--skip")
    assert factory.one("SELECT pg_snapshot_xmax(snapshot)::text::bigint FROM pillarbox.webhook_cursors") > before


def test_doctor_warns_of_endpoints_that_do_not_take_their_events(command: Command, factory: Factory) -> None:
    def verdict() -> Any:
        now = datetime.now(UTC)
        rows = factory.sql(
            """SELECT w.name, w.state, w.reason, c.failing, c.error, %(now)s AS now
                 FROM pillarbox.webhooks w JOIN pillarbox.webhook_cursors c ON c.webhook = w.name""",
            now=now,
        )
        return doctor.endpoints(rows, Limits())

    assert verdict().verdict is Severity.OK
    command("add", "app", URL)
    factory.sql("UPDATE pillarbox.webhook_cursors SET failing = now() - interval '5 minutes', error = 'answered 500'")
    assert verdict().verdict is Severity.OK
    factory.sql("UPDATE pillarbox.webhook_cursors SET failing = now() - interval '2 hours'")
    assert (verdict().verdict, "answered 500" in verdict().found) == (Severity.WARN, True)
    factory.sql("UPDATE pillarbox.webhooks SET state = 'paused', reason = 'it failed'")
    assert (verdict().verdict, verdict().found) == (Severity.WARN, "app is paused (it failed)")
    command("disable", "app")
    assert verdict().verdict is Severity.NOTE
    assert timedelta(hours=1) == Limits().webhook
