"""test_rates_shared — a limit holds for SMTP and HTTP together, and for each door alone while the other one is away

Owns: proofs about smtpd/process/rates_socket.py and httpd/sending/rates.py with both daemons.
See: docs/how-to/accept/limit-clients.md; tests/scenario/acceptance/test_rates_are_exact_across_processes.py.
"""

from __future__ import annotations

import socket
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import pytest

from smtpd.process import rates_socket
from tests.fixtures.daemons.api import Api
from tests.fixtures.daemons.login import HASH, PASSWORD
from tests.fixtures.daemons.serving import Dialogue

if TYPE_CHECKING:
    import httpx

    from tests.fixtures.daemons.system import Daemon, System

LIMITS: dict[str, Any] = {"rates": {"user": {"messages": 6}, "window": "1h"}}
MAIL = {"from": "shop@example.com", "to": "ann@example.net", "subject": "x", "text": "x"}
LOGIN = b"AUTH PLAIN " + b64encode(f"\0shop\0{PASSWORD}".encode())


async def smtpd(system: System, processes: int) -> Daemon:
    """An smtpd whose users are principals."""
    table = {"source": "table", "tlsonly": False}
    return await system.smtpd(processes=processes, authentication=table, **LIMITS)


async def by_smtp(daemon: Daemon, times: int) -> list[str]:
    """The reply to MAIL of the principal, so many times."""
    async with Dialogue(daemon.address[1]) as client:
        assert (await client.ask(LOGIN)).startswith("235")
        replies = []
        for _ in range(times):
            replies.append((await client.ask(b"MAIL FROM:<shop@example.com>"))[:3])
            await client.ask(b"RSET")
        return replies


async def by_http(client: httpx.AsyncClient, times: int) -> list[int]:
    """The status of so many messages."""
    return [(await client.post("/v1/messages", json=MAIL)).status_code for _ in range(times)]


async def shop(api: Api) -> httpx.AsyncClient:
    """A client of the principal, which has a password too."""
    client = await api.caller("shop")
    await api.system.rows("UPDATE principals SET argon2 = %s", HASH)
    return client


@pytest.mark.parametrize("processes", [1, 2])
async def test_a_principal_sends_as_much_by_both_doors_as_by_one(system: System, processes: int) -> None:
    async with Api(system, await system.httpd(smtpd=LIMITS)) as api:
        client = await shop(api)
        smtp = await smtpd(system, processes)
        await api.daemon.until_said("rates.shared")
        assert await by_http(client, 3) == [202] * 3
        assert await by_smtp(smtp, 5) == ["250"] * 3 + ["450"] * 2
        assert await by_http(client, 2) == [429] * 2
        assert await by_smtp(smtp, 1) == ["450"]


async def test_without_smtpd_httpd_counts_by_itself_after_what_it_let_in(system: System) -> None:
    async with Api(system, await system.httpd(smtpd=LIMITS)) as api:
        client = await shop(api)
        await api.daemon.until_said("rates.apart")
        assert await by_http(client, 2) == [202] * 2
        smtp = await smtpd(system, 1)
        await api.daemon.until_said("rates.shared")
        assert await by_http(client, 2) == [202] * 2
        await smtp.kill()
        await api.daemon.until_said("rates.apart", 2)
        assert await by_http(client, 3) == [202, 202, 429], "what was let in while smtpd counted is counted too"
        await smtp.start()
        await api.daemon.until_said("rates.shared", 2)


async def test_the_newest_smtpd_of_a_folder_counts_and_an_older_one_leaves_its_socket(system: System) -> None:
    older = await smtpd(system, 1)
    newer = await system.smtpd("newer")
    inode = (system.folder / rates_socket.NAME).stat().st_ino
    await older.stop()
    assert (system.folder / rates_socket.NAME).stat().st_ino == inode
    with rates_socket.connect(system.folder) as end:  # what cannot be read is cut off, and nothing else
        end.setblocking(True)
        end.settimeout(30)
        end.sendall(b'{"ask": "hit", "id": 1, "limits": 5, "n": 1}\n')
        assert end.recv(100) == b""
    assert (system.folder / rates_socket.NAME).stat().st_mode & 0o777 == 0o660
    async with Dialogue(newer.address[1]) as client:
        assert (await client.ask(b"NOOP")).startswith("250")
    await newer.stop()
    with pytest.raises(OSError, match="No such file"):
        rates_socket.connect(system.folder)


async def test_smtpd_serves_where_the_socket_cannot_be_made(system: System) -> None:
    (system.folder / rates_socket.NAME).mkdir()
    daemon = await system.smtpd()
    assert await daemon.until_said("rates.socket_failed")
    async with Dialogue(daemon.address[1]) as client:
        assert (await client.ask(b"NOOP")).startswith("250")


def test_a_folder_with_a_long_name_has_the_socket_too(tmp_path: Any) -> None:
    folder = tmp_path / ("x" * 120)
    door, _ = rates_socket._bound(folder)
    with door, rates_socket.connect(folder) as end:
        assert end.family == socket.AF_UNIX
