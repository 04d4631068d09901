"""test_postfix_bounces — Postfix as next hop takes mail, bounces it, and its bounce is understood

Owns: the proof, against an independent mailer, that the DSN parameters of submitters are passed on and a bounce to our
    signed return path suppresses the failed address.
See: RFC 3461 section 5.2.1; queued/smtp/commands.py; queued/reports/learn.py; bounce(8) of Postfix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from shared.mail.suppression import named_message
from tests.fixtures.daemons.submit import Client
from tests.fixtures.database.notices import fields, parse
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import Daemon, System
    from tests.fixtures.peers.postfix import Postfix

    type Start = Callable[..., AbstractAsyncContextManager[Postfix]]

CONTENT = b"Subject: hello\r\n\r\nbody\r\n"


def neighbours(books: Books, domain: str, smtpd: Daemon) -> dict[str, str]:
    """Postfix's settings: mail for `domain` comes back to us, all other goes to the sink, which refuses it."""
    return {
        "default_transport": f"smtp:[127.0.0.1]:{books.sink.port}",
        "transport_maps": f"inline:{{{domain}=smtp:[127.0.0.1]:{smtpd.address[1]}}}",
    }


async def test_envid_ret_and_orcpt_reach_the_bounce_of_postfix(system: System, books: Books, postfix: Start) -> None:
    smtpd = await system.smtpd()
    async with postfix(**neighbours(books, "origin.example", smtpd)) as peer:
        routes = {"origin.example": f"127.0.0.1:{books.sink.port}"}
        await system.worker(peer.port, transport={"routes": routes})
        client = await Client.open(smtpd.address)
        await client.command("MAIL FROM:<app@origin.example> RET=HDRS ENVID=order+2B7")
        await client.command("RCPT TO:<joe.permerror@ash.example> NOTIFY=FAILURE ORCPT=rfc822;old+2Bjoe@ash.example")
        await client.command("DATA")
        assert (await client.command("Subject: an order\r\n\r\nof goods\r\n.")).startswith("250")
        await client.close()
        await eventually(lambda: len(books.sink.received) == 1, "the bounce arrives")
    [bounce] = books.sink.received
    assert (bounce.sender, bounce.recipients) == ("", ("app@origin.example",))
    assert bounce.content is not None
    message = parse(bounce.content)
    of_message, recipient = fields(message)
    assert of_message["Reporting-MTA"] == "dns; postfix.test"
    assert of_message["Original-Envelope-Id"] == "order+7"
    assert recipient["Original-Recipient"] == "rfc822;old+joe@ash.example"
    assert "of goods" not in message.as_string()


async def test_a_bounce_to_the_return_path_suppresses_the_address(system: System, books: Books, postfix: Start) -> None:
    secret = system.folder / "secret"
    secret.write_bytes(b"sixteen octets and more")
    smtpd = await system.smtpd(suppression={"accept": ["bounces.example"], "action": "reject", "keep": "1ms"})
    suppression = {
        "addresses": ["bounces.example"],
        "evidence": "signed",
        "returnpath": {"domain": "bounces.example", "secret": str(secret)},
    }
    async with postfix(**neighbours(books, "bounces.example", smtpd)) as peer:
        worker = await system.worker(peer.port, suppression=suppression)
        mail = Sample("list@origin.example", ("Joe.permerror@ash.example",), CONTENT)
        await books.submit(smtpd, [mail])
        await system.until(
            "SELECT count(*) = 1 FROM suppressions WHERE target = 'joe.permerror@ash.example' AND active"
        )
        [read] = await worker.until_said("suppression.read")
        assert read["said"] == "a report on 1"
        path = read["to"].partition("@")[0]
        [message] = (await system.rows("SELECT messages__id FROM archive WHERE recipientdomain = 'ash.example'"))[0]
        assert named_message(path, secret.read_bytes()) == message
        client = await Client.open(smtpd.address)
        await client.command("MAIL FROM:<list@origin.example>")
        assert (await client.command("RCPT TO:<joe.permerror@ash.example>")).startswith("550 5.7.1")
        await client.close()
    reason = await system.value("SELECT reason FROM suppressions")
    assert "5.1.1" in reason
    assert "scripted" in reason
