"""test_smtpd_reloads — SIGHUP takes the new configuration whole or not at all, and open sessions keep theirs

Owns: reload as an operator and as clients see it, in one process and in several.
See: smtpd/process/reload.py; RFC 1870 section 3: SIZE shows which configuration a session has.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.daemons.serving import Dialogue
from tests.fixtures.slow_file import SlowFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.daemons.system import Daemon, System

type Change = Callable[[dict[str, Any]], object]


def change(system: System, work: Change) -> None:
    """Edit smtpd.yaml."""
    path = system.folder / "smtpd.yaml"
    settings = json.loads(path.read_text())
    work(settings)
    path.write_text(json.dumps(settings))


def limit(octets: int) -> Change:
    """The largest message of the first server."""
    return lambda settings: settings["servers"][0].update({"phases": {"data": {"maxsize": octets}}})


async def sizes(smtpd: Daemon, count: int) -> set[str]:
    """The SIZE offered to that many new sessions."""
    found = set()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            client = await stack.enter_async_context(Dialogue(smtpd.address[1]))
            found |= {line[4:] for line in client.offered if line[4:].startswith("SIZE")}
    return found


@pytest.mark.parametrize("processes", [1, 2])
async def test_new_sessions_get_the_new_configuration_and_open_ones_keep_theirs(system: System, processes: int) -> None:
    smtpd = await system.smtpd(processes=processes)
    async with Dialogue(smtpd.address[1]) as before:
        change(system, limit(1000))
        smtpd.signal(signal.SIGHUP)
        await smtpd.until_said("daemon.reloaded")
        assert await sizes(smtpd, 12) == {"SIZE 1000"}
        assert (await before.ask(b"MAIL FROM:<a@sender.example> SIZE=2000")).startswith("250")
    async with Dialogue(smtpd.address[1]) as after:
        assert (await after.ask(b"MAIL FROM:<a@sender.example> SIZE=2000")).startswith("552")


@pytest.mark.parametrize("processes", [1, 2])
async def test_clients_are_served_while_the_file_is_read(system: System, processes: int) -> None:
    smtpd = await system.smtpd(processes=processes)
    change(system, limit(1000))
    file = SlowFile(system.folder / "smtpd.yaml")
    smtpd.signal(signal.SIGHUP)
    await file.reading()
    assert "SIZE 1000" not in await sizes(smtpd, 4)
    assert smtpd.said("daemon.reloaded") == []
    file.give()
    await smtpd.until_said("daemon.reloaded")
    assert await sizes(smtpd, 12) == {"SIZE 1000"}


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_file_with_a_mistake_changes_nothing_and_is_one_event(system: System, processes: int) -> None:
    smtpd = await system.smtpd(processes=processes)
    offered = await sizes(smtpd, 1)

    def mistaken(settings: dict[str, Any]) -> None:
        limit(1000)(settings)
        settings["relay"] = {"networks": ["nowhere"]}

    change(system, mistaken)
    smtpd.signal(signal.SIGHUP)
    [refused] = await smtpd.until_said("daemon.reload_refused")
    assert "relay.networks" in refused["error"]
    assert "nowhere" in refused["error"]
    assert await sizes(smtpd, 12) == offered
    assert smtpd.said("daemon.reloaded") == []


async def test_an_unreadable_certificate_changes_nothing(system: System) -> None:
    smtpd = await system.smtpd(processes=2)
    offered = await sizes(smtpd, 1)

    def mistaken(settings: dict[str, Any]) -> None:
        limit(1000)(settings)
        settings["servers"][0]["tls"] = {"certificate": "absent.pem", "privatekey": "absent.key"}

    change(system, mistaken)
    smtpd.signal(signal.SIGHUP)
    [refused] = await smtpd.until_said("daemon.reload_refused")
    assert "servers[0].tls" in refused["error"]
    assert await sizes(smtpd, 12) == offered


async def test_keys_that_need_a_restart_are_named_and_the_rest_is_used(system: System) -> None:
    smtpd = await system.smtpd(processes=2)

    def much(settings: dict[str, Any]) -> None:
        limit(1000)(settings)
        settings["processes"] = 3
        settings["environment"]["database"]["uri"] = "postgresql://elsewhere.example/none"
        settings["servers"][0]["listeners"] = [{"port": 0}, {"port": 0}]
        settings["servers"].append({"id": "second", "listeners": [{"port": 0}]})

    change(system, much)
    smtpd.signal(signal.SIGHUP)
    await smtpd.until_said("daemon.reloaded")
    [ignored] = smtpd.said("daemon.reload_ignored")
    assert ignored["keys"] == "processes, environment.database, servers[second], servers[mx].listeners"
    assert await sizes(smtpd, 12) == {"SIZE 1000"}


async def test_a_process_started_later_has_the_new_configuration(system: System) -> None:
    smtpd = await system.smtpd(processes=2)
    change(system, limit(1000))
    smtpd.signal(signal.SIGHUP)
    await smtpd.until_said("daemon.reloaded")
    for line in smtpd.said("child.started"):
        os.kill(int(line["pid"]), signal.SIGKILL)
    await smtpd.until_said("child.started", 4)
    assert await sizes(smtpd, 12) == {"SIZE 1000"}
