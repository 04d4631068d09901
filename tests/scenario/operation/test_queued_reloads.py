"""test_queued_reloads — SIGHUP applies a new queued.yaml completely or not at all; running attempts keep the old one

Owns: reload of a worker from the operator's view: transports, keys, notifications, suppression, the log; keys
    that need a restart; errors.
See: queued/reload.py, queued/equipment.py; docs/how-to/operate/reload.md
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from queued.signing.keys import new_key
from scripts.sink.server import Sink
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.slow_file import SlowFile
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System


async def reloaded(system: System, worker: Daemon, work: Callable[[dict[str, Any]], object]) -> None:
    """Edit the worker's file and send SIGHUP."""
    path = system.folder / f"{worker.name}.yaml"
    settings = json.loads(path.read_text())
    work(settings)
    path.write_text(json.dumps(settings))
    before = len(worker.said("daemon.reloaded")) + len(worker.said("daemon.reload_refused"))
    worker.signal(signal.SIGHUP)
    await eventually(
        lambda: len(worker.said("daemon.reloaded")) + len(worker.said("daemon.reload_refused")) > before,
        "the worker has reloaded",
    )


def port(number: int) -> Callable[[dict[str, Any]], object]:
    """The port of the only transport."""
    return lambda settings: settings["transports"][0]["connection"].update({"port": number})


async def test_new_attempts_use_the_new_configuration_and_running_ones_the_old(system: System, books: Books) -> None:
    async with Sink() as other:
        smtpd = await system.smtpd()
        worker = await system.worker(books.sink.port)
        await books.submit(smtpd, numbered(1, box="hangdot"))
        await eventually(lambda: len(books.sink.received) == 1, "the sink has the first message and keeps silent")
        await reloaded(system, worker, port(other.port))
        await books.submit(smtpd, numbered(5, first=10))
        await eventually(lambda: len(other.received) == 5, "new mail goes to the other sink")
        assert len(books.sink.received) == 1
        await system.until("SELECT count(*) = 1 FROM queue WHERE token IS NOT NULL")
        assert worker.said("daemon.failed") == []


async def test_an_added_transport_delivers_the_mail_that_waited_for_it(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(1))
    await system.rows("UPDATE queue SET transportid = 'late'")
    worker = await system.worker(books.sink.port)
    [line] = await worker.until_said("result.deferred")
    assert line["reply"] == r"transport \"late\" does not exist in queued.yaml"

    def add(settings: dict[str, Any]) -> None:
        settings["transports"].append({**settings["transports"][0], "id": "late"})

    await reloaded(system, worker, add)
    await system.rows("UPDATE queue SET next_retry = now()")
    await eventually(lambda: len(books.sink.received) == 1, "it is delivered")


async def test_an_unchanged_transport_keeps_its_connections_and_a_changed_one_ends_them(
    system: System, books: Books
) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, transport={"pooling": {"idle": "10m"}})
    await books.submit(smtpd, numbered(1, ["oak.example"]))
    await system.until_finished()
    await reloaded(system, worker, lambda settings: settings.update({"shutdown": {"timeout": "7s"}}))
    await books.submit(smtpd, numbered(1, ["oak.example"], first=1))
    await system.until_finished()
    assert books.sink.connections == 1
    await reloaded(system, worker, lambda settings: settings["transports"][0].update({"recipients": 7}))
    await eventually(lambda: books.sink.open_connections == 0, "the connection that was kept is closed")
    await books.submit(smtpd, numbered(1, ["oak.example"], first=2))
    await system.until_finished()
    assert books.sink.connections == 2


async def test_an_invalid_file_changes_nothing_and_is_one_line(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port)

    def spoil(settings: dict[str, Any]) -> None:
        settings["transports"][0]["recipients"] = 0
        port(1)(settings)

    await reloaded(system, worker, spoil)
    [line] = worker.said("daemon.reload_refused")
    assert "transports[0].recipients" in line["error"]
    assert "allowed: " in line["error"]
    missing = {"rules": [{"id": "x", "senderdomain": ["*"], "keys": [{"selector": "s", "file": "/nowhere.pem"}]}]}

    def unsigned(settings: dict[str, Any]) -> None:
        settings["transports"][0]["recipients"] = 50
        settings["signing"] = missing

    await reloaded(system, worker, unsigned)
    assert "/nowhere.pem" in worker.said("daemon.reload_refused")[1]["error"]
    await books.submit(smtpd, numbered(3))
    await eventually(lambda: len(books.sink.received) == 3, "mail goes on as before")


def bounced(**changes: Any) -> dict[str, Any]:
    """Settings that send all notifications at once."""
    return {"enabled": True, "gather": "0s", "hostname": "mx.test", **changes}


def notifications(books: Books) -> list[str]:
    """The mail that arrived from the null sender."""
    return [(each.content or b"").decode() for each in books.sink.received if each.sender == ""]


async def test_notifications_follow_the_new_configuration(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(1, box="permerror"))
    await system.until_finished()
    await reloaded(system, worker, lambda settings: settings.update(bounces=bounced(name="The Post")))
    await books.submit(smtpd, numbered(1, box="permerror", first=1))
    await eventually(lambda: len(notifications(books)) == 1, "the second sender is notified, and not the first")
    assert 'From: "The Post" <' in notifications(books)[0]
    await reloaded(system, worker, lambda settings: settings.update(bounces=bounced(texts={"failed": "Call 4711."})))
    await books.submit(smtpd, numbered(1, box="permerror", first=2))
    await eventually(lambda: len(notifications(books)) == 2, "the third sender is notified")
    assert "Call 4711." in notifications(books)[1]
    assert "The Post" not in notifications(books)[1]
    await reloaded(system, worker, lambda settings: settings.update(bounces={"enabled": False}))
    await books.submit(smtpd, numbered(1, box="permerror", first=3))
    await system.until("SELECT count(*) = 4 FROM archive WHERE result = 'failed'")
    await system.until_finished()
    assert await system.value("SELECT count(*) FROM archive WHERE serverid = 'bounce'") == 2
    assert await system.value("SELECT count(*) FROM notices") == 0


async def test_suppression_follows_the_new_configuration(system: System, books: Books) -> None:
    await system.rows("INSERT INTO suppressions (target, reason, source) VALUES ('oak.example', 'x', 'operator')")
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port)
    await books.submit(smtpd, numbered(1, ["oak.example"]))
    await system.until("SELECT count(*) = 1 FROM archive WHERE result = 'rejected'")
    secret = system.folder / "return-path.secret"
    secret.write_text("a secret of sixteen octets or more")

    def change(settings: dict[str, Any]) -> None:
        path = {"domain": "bounces.example", "secret": str(secret)}
        settings["suppression"] = {"atdelivery": "off", "addresses": ["bounces.example"], "returnpath": path}

    await reloaded(system, worker, change)
    await books.submit(smtpd, numbered(1, ["oak.example"], first=1))
    await eventually(lambda: len(books.sink.received) == 1, "suppressed mail is delivered, by the new file")
    [sent] = books.sink.received
    assert sent.sender.startswith("b-")
    assert sent.sender.endswith("@bounces.example"), "by its return path"
    await books.submit(smtpd, numbered(1, ["bounces.example"], first=2))
    [read] = await worker.until_said("suppression.read")
    assert read["said"] == "no report"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"bounces": bounced(transport="nowhere")}, "bounces.transport"),
        (
            {"suppression": {"returnpath": {"domain": "b.example", "secret": "/nowhere"}}},
            "suppression.returnpath.secret",
        ),
    ],
    ids=["bounces", "suppression"],
)
async def test_an_invalid_bounces_section_changes_nothing(
    system: System, books: Books, wrong: dict[str, Any], named: str
) -> None:
    """The rest of the file is valid: senders would not be notified, and suppressed mail would be delivered."""
    good = {"bounces": {"enabled": False}, "suppression": {"atdelivery": "off"}}
    await system.rows("INSERT INTO suppressions (target, reason, source) VALUES ('oak.example', 'x', 'operator')")
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, bounces=bounced())
    await reloaded(system, worker, lambda settings: settings.update({**good, **wrong}))
    [line] = worker.said("daemon.reload_refused")
    assert named in line["error"]
    assert "allowed: " in line["error"]
    await books.submit(smtpd, numbered(1, ["oak.example"]))
    await eventually(lambda: len(notifications(books)) == 1, "the sender is notified of the rejection")
    assert len(books.sink.received) == 1


async def test_keys_that_need_a_restart_are_named_and_the_rest_is_used(system: System, books: Books) -> None:
    worker = await system.worker(books.sink.port)

    def change(settings: dict[str, Any]) -> None:
        settings["workers"][0]["where"] = "false"
        settings["claim"]["inflight"] = 7
        settings["environment"]["log"]["level"] = "info"

    await reloaded(system, worker, change)
    [line] = worker.said("daemon.reload_ignored")
    assert line["keys"] == "claim.inflight, workers[worker]"


async def test_several_signals_at_once_apply_the_last_file(system: System, books: Books) -> None:
    async with Sink() as other:
        smtpd = await system.smtpd()
        worker = await system.worker(1)
        path = system.folder / f"{worker.name}.yaml"
        for number in (2, 3, other.port):
            settings = json.loads(path.read_text())
            port(number)(settings)
            path.write_text(json.dumps(settings))
            worker.signal(signal.SIGHUP)
        await worker.until_said("daemon.reloaded")
        await books.submit(smtpd, numbered(2))
        await eventually(lambda: len(other.received) == 2, "the last one counts")


@pytest.mark.parametrize("slow", ["queued.yaml", "key"])
async def test_mail_moves_while_files_are_read(system: System, books: Books, slow: str) -> None:
    key = system.folder / "rsa.pem"
    key.write_bytes(new_key(ed25519=False).pem())
    signing = {
        "rules": [{"id": "x", "senderdomain": ["elsewhere.example"], "keys": [{"selector": "s", "file": str(key)}]}]
    }
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, signing=signing)
    file = SlowFile(system.folder / f"{worker.name}.yaml" if slow == "queued.yaml" else key)
    worker.signal(signal.SIGHUP)
    await file.reading()
    await books.submit(smtpd, numbered(3))
    await eventually(lambda: len(books.sink.received) == 3, "mail is delivered meanwhile")
    assert worker.said("daemon.reloaded") == []
    file.give()
    await worker.until_said("daemon.reloaded")


async def test_a_worker_that_stops_while_it_reads_a_file_uses_no_part_of_it(system: System, books: Books) -> None:
    worker = await system.worker(books.sink.port)
    file = SlowFile(system.folder / f"{worker.name}.yaml")
    worker.signal(signal.SIGHUP)
    await file.reading()
    worker.signal(signal.SIGTERM)
    await worker.until_said("daemon.stopped")
    file.give()
    assert await worker.ended() == 0
    assert worker.said("daemon.reloaded") == worker.said("daemon.reload_refused") == []
