"""test_policy_is_reloaded — new sessions get a new policy, open ones keep theirs, and a broken one is never used

Owns: policy under SIGHUP in real daemons of two processes, and a rule's rate counted over both.
See: tests/scenario/acceptance/test_smtpd_reloads.py for the rest of the configuration.
"""

from __future__ import annotations

import json
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.serving import Dialogue

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

CLOSED = {"id": "closed", "if": {"recipientdomain": ["closed.example"]}, "then": {"reject": "550 5.7.1 Closed"}}


def write(system: System, policy: dict[str, Any]) -> None:
    """Write this policy into smtpd.yaml."""
    path = system.folder / "smtpd.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "policy": policy}))


async def asked(client: Dialogue) -> str:
    """The code of the reply to a recipient in closed.example."""
    await client.ask(b"RSET")
    await client.ask(b"MAIL FROM:<a@sender.example>")
    return (await client.ask(b"RCPT TO:<b@closed.example>"))[:3]


async def new_sessions(smtpd: Daemon, count: int = 12) -> set[str]:
    """The replies to this many new sessions."""
    found = set()
    async with AsyncExitStack() as stack:
        for _ in range(count):
            found.add(await asked(await stack.enter_async_context(Dialogue(smtpd.address[1]))))
    return found


async def test_new_sessions_get_the_new_policy_and_open_ones_keep_theirs(system: System) -> None:
    smtpd = await system.smtpd(processes=2, policy={"rules": []})
    async with Dialogue(smtpd.address[1]) as before:
        assert await asked(before) == "250"
        write(system, {"rules": [CLOSED]})
        smtpd.signal(signal.SIGHUP)
        await smtpd.until_said("daemon.reloaded")
        assert await new_sessions(smtpd) == {"550"}
        assert await asked(before) == "250"


async def test_an_invalid_policy_changes_nothing(system: System) -> None:
    smtpd = await system.smtpd(processes=2, policy={"rules": [CLOSED]})
    listed = {"id": "more", "if": {"in": {"list": "gone", "of": "recipientdomain"}}, "then": {"accept": True}}
    write(system, {"lists": [{"id": "gone", "file": str(system.folder / "gone")}], "rules": [listed]})
    smtpd.signal(signal.SIGHUP)
    await smtpd.until_said("daemon.reload_refused")
    assert await new_sessions(smtpd) == {"550"}


async def test_a_rules_rate_is_one_count_over_all_processes(system: System) -> None:
    rate = {"key": ["recipientdomain"], "over": "5/1h"}
    rule = {"id": "few", "if": {"rate": rate}, "then": {"defer": "450 4.7.1 Enough"}}
    smtpd = await system.smtpd(processes=2, policy={"rules": [rule]})
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(Dialogue(smtpd.address[1])) for _ in range(12)]
        assert sorted([await asked(client) for client in clients]) == ["250"] * 5 + ["450"] * 7
