"""test_certificate_is_renewed — smtpd serves a new certificate after SIGHUP, never a broken or ended one"""

from __future__ import annotations

import json
import signal
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from tests.fixtures.daemons.serving import Dialogue

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System
    from tests.fixtures.peers.certificates import Authority

NAME = "mx.test"


async def begin_tls(client: Dialogue, authority: Authority) -> bytes:
    """Start TLS; the server's certificate (DER), verified as by a client."""
    assert (await client.ask(b"STARTTLS")).startswith("220")
    await client.writer.start_tls(authority.trust(), server_hostname=NAME)
    assert (await client.ask(b"EHLO client.example")).startswith("250")
    shown: bytes = client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return shown


async def shown(smtpd: Daemon, authority: Authority, count: int = 8) -> set[bytes]:
    """The certificates of many new connections, to any process."""
    found = set()
    for _ in range(count):
        async with Dialogue(smtpd.address[1]) as client:
            found.add(await begin_tls(client, authority))
    return found


def server(system: System, **tls: Any) -> dict[str, Any]:
    return {"servers": [{"id": "mx", "hostname": NAME, "listeners": [{"port": 0}], "tls": tls}]}


async def test_a_certificate_is_renewed(system: System, authority: Authority) -> None:
    pair = authority.issue(NAME, stem="served")
    smtpd = await system.smtpd(processes=2, **server(system, **pair))
    [first] = await shown(smtpd, authority)
    async with Dialogue(smtpd.address[1]) as before:
        assert await begin_tls(before, authority) == first

        authority.issue(NAME, stem="served")
        smtpd.signal(signal.SIGHUP)
        await smtpd.until_said("daemon.reloaded")
        [second] = await shown(smtpd, authority)
        assert second != first

        key = authority.folder / "served.key"
        key.write_text("broken")
        smtpd.signal(signal.SIGHUP)
        [refused] = await smtpd.until_said("daemon.reload_refused")
        assert "servers[0].tls" in refused["error"]
        assert await shown(smtpd, authority) == {second}

        yesterday = datetime.now(UTC) - timedelta(days=1)
        authority.ending(NAME, yesterday, not_before=yesterday - timedelta(days=9), stem="served")
        smtpd.signal(signal.SIGHUP)
        _, refused = await smtpd.until_said("daemon.reload_refused", 2)
        assert "servers[0].tls.certificate" in refused["error"]
        assert "expired" in refused["error"]
        assert await shown(smtpd, authority) == {second}

        # The session from before the first renewal keeps its certificate.
        assert (await before.submit()).startswith("250 2.0.0")
    assert json.loads((system.folder / "smtpd.yaml").read_text())["servers"][0]["tls"] == pair
