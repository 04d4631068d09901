"""test_mail_passes_between_postfix_and_us — Postfix relays to smtpd, queued delivers to Postfix by MX from its source

Owns: interoperation in both directions: transport group, MX, site and source address, with an independent
    server.
See: tests/scenario/delivery/test_postfix_next_hop.py for TLS between the two.
"""

from __future__ import annotations

import asyncio
import smtplib
from typing import TYPE_CHECKING

from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.postfix import Postfix

ZONE = {
    ("one.test", "MX"): ["10 mx.test."],
    ("two.test", "MX"): ["10 mx.test."],
    ("mx.test", "A"): ["127.0.0.1"],
}
SOURCE = "127.0.0.11"


def submit(port: int, *recipients: str) -> None:
    """Send one message through Postfix."""
    with smtplib.SMTP("127.0.0.1", port) as client:
        client.sendmail("ann@origin.test", recipients, b"Subject: round trip\r\n\r\nHello.\r\n")


async def test_postfix_relays_to_smtpd_and_queued_delivers_to_postfix(
    system: System, postfix: Callable[..., AbstractAsyncContextManager[Postfix]]
) -> None:
    smtpd = await system.smtpd()
    # Mail from our source address has arrived; all other mail is relayed to our smtpd.
    arrived = f"check_client_access cidr:{{{{{SOURCE}/32 FILTER discard:arrived}}}}"
    settings = {"default_transport": f"smtp:[127.0.0.1]:{smtpd.address[1]}", "smtpd_client_restrictions": arrived}
    async with postfix(**settings) as neighbour, FakeDns(ZONE) as dns:
        await system.worker(
            neighbour.port,
            transportgroups=[
                {
                    "id": "direct",
                    "connection": {"mode": "mx", "sites": True},
                    "allow": {"private": True},
                    "sources": [{"address": SOURCE, "hostname": "out.test"}],
                }
            ],
            transport={"group": "direct"},
            routing={"dns": {"servers": [dns.where]}},
        )
        recipients = ("bob@one.test", "carol@two.test")
        await asyncio.to_thread(submit, neighbour.port, *recipients)
        await eventually(lambda: neighbour.log.count("(arrived)") == 2, "both have come back")
        await system.until_finished()
        # The two domains are now known to be one site, so one transaction serves both.
        await asyncio.to_thread(submit, neighbour.port, *recipients)
        await eventually(lambda: neighbour.log.count("(arrived)") == 4, "both have come back again")
        await system.until_finished()

        from_us = [line for line in neighbour.log.splitlines() if f"[{SOURCE}]" in line and "client=" in line]
        assert len(from_us) == 3
        assert await system.rows("SELECT DISTINCT outcome, source, tls, remote FROM attempts") == [
            ("delivered", SOURCE, "none", f"mx.test[127.0.0.1]:{neighbour.port}")
        ]
        assert await system.value("SELECT count(*) FROM archive WHERE result = 'success'") == 4
