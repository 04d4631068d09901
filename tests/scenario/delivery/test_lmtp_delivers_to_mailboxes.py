"""test_lmtp_delivers_to_mailboxes — mail from a client reaches Dovecot by LMTP, and senders that asked are notified

See: docs/how-to/deliver/log-in-to-a-relay.md; queued/smtp/lmtp.py; RFC 3461 section 4.1.
"""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import Client
from tests.fixtures.database.notices import fields, parse
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.dovecot import Dovecot

    type Starts = Callable[..., AbstractAsyncContextManager[Dovecot]]

BOUNCES = {
    "enabled": True,
    "gather": "0s",
    "hostname": "mx.test",
    "texts": {"delivered": "Arrived at {hostname}:\n{recipients}\n"},
}


async def test_each_mailbox_has_its_own_lmtp_reply(system: System, books: Books, dovecot: Starts) -> None:
    smtpd = await system.smtpd()
    worker = await system.worker(books.sink.port, bounces=BOUNCES)
    async with dovecot() as peer:
        written = system.folder / f"{worker.name}.yaml"
        settings = json.loads(written.read_text())
        [relay] = settings["transports"]
        boxes = {**relay, "connection": {"protocol": "lmtp", "socket": str(peer.socket)}}
        settings["transports"] = [boxes, {**relay, "id": "notices"}]
        settings["bounces"]["transport"] = "notices"
        written.write_text(json.dumps(settings))
        worker.signal(signal.SIGHUP)
        await worker.until_said("daemon.reloaded")

        client = await Client.open(smtpd.address)
        await client.command("MAIL FROM:<app@origin.example> RET=HDRS ENVID=order-7")
        for name, asked in (("bob", " NOTIFY=SUCCESS"), ("full", " NOTIFY=SUCCESS,FAILURE"), ("carol", "")):
            assert (await client.command(f"RCPT TO:<{name}@boxes.example>{asked}")).startswith("250")
        await client.command("DATA")
        assert (await client.command("Subject: an order\r\n\r\nof goods\r\n.")).startswith("250")
        await client.close()

        await eventually(lambda: len(books.sink.received) == 2, "two notifications arrive")
        await system.until("SELECT count(*) = 0 FROM queue")
        assert [len(peer.mails(name)) for name in ("bob", "carol", "full")] == [1, 1, 0]
        assert b"of goods" in peer.mails("bob")[0]
    by_subject = {}
    for received in books.sink.received:
        assert (received.sender, received.recipients) == ("", ("app@origin.example",))
        assert received.content is not None
        notice = parse(received.content)
        by_subject[str(notice["Subject"])] = notice
    delivered = by_subject["Successful Mail Delivery Report"]
    _, bob = fields(delivered)
    assert (bob["Action"], bob["Final-Recipient"]) == ("delivered", "rfc822; bob@boxes.example")
    assert bob["Status"].startswith("2.")
    body = delivered.get_body()
    assert body is not None
    # Senders must not see the path of a socket.
    assert body.get_content().startswith("Arrived at mx.test:\r\n<bob@boxes.example>: 250 2.0.0 <bob@")
    assert str(peer.socket) not in str(delivered)
    _, full = fields(by_subject["Undelivered Mail Returned to Sender"])
    assert (full["Action"], full["Status"], full["Final-Recipient"]) == (
        "failed",
        "5.2.2",
        "rfc822; full@boxes.example",
    )
