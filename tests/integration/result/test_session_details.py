"""test_session_details — a result records the session's protocol, and whether the host will notify the sender

See: RFC 3461 section 5.2.1.
"""

from __future__ import annotations

import pytest

from queued.dsn.requested import notice
from tests.fixtures.daemons.routed import routing
from tests.fixtures.peers.scripted_peer import CONTENT, GREETING, PLAIN, ScriptedPeer

TAKES = ("MAIL", b"250 Ok\r\n", "RCPT", b"250 Ok\r\n", "DATA", b"354 go on\r\n", CONTENT, b"250 2.0.0 taken\r\n")
DSN = (*GREETING, b"250-peer.example\r\n250 DSN\r\n")


@pytest.mark.parametrize(("hello", "expected"), [(PLAIN, "relayed"), (DSN, None)])
async def test_a_relayed_notice_is_sent_only_to_hosts_without_dsn(
    hello: tuple[bytes | str, ...], expected: str | None
) -> None:
    async with (
        ScriptedPeer(*hello, *TAKES) as peer,
        routing({}, connection={"mode": "smarthost", "server": "127.0.0.1", "port": peer.port}) as routed,
    ):
        result = await routed.send_one()
    asked = result._replace(claimed=result.claimed._replace(metadata={"_dsn": {"notify": ["SUCCESS"]}}))
    assert (result.result, result.spoken.dsn, result.spoken.tls) == ("success", expected is None, "none")
    assert notice(asked) == expected


async def test_without_a_session_no_protocol_is_recorded() -> None:
    async with routing({}) as routed:
        result = await routed.send_one("bob@nowhere.test")
    assert (result.spoken.tls, result.spoken.source, result.spoken.dsn) == (None, None, False)
