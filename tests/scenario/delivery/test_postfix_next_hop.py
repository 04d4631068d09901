"""test_postfix_next_hop — mail goes to Postfix and comes from Postfix under TLS, each side proving itself"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from queued.smtp.client import SmtpConnection
from queued.smtp.transaction import Timeouts
from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.routed import routing
from tests.fixtures.daemons.serving import MESSAGE, serving
from tests.fixtures.daemons.smtp_send import to

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System
    from tests.fixtures.peers.certificates import Authority
    from tests.fixtures.peers.postfix import Postfix

    type Starts = Callable[..., AbstractAsyncContextManager[Postfix]]


def served(pair: dict[str, str], **more: str) -> dict[str, str]:
    """Postfix's settings for a server with this certificate."""
    return {
        "smtpd_tls_security_level": "may",
        "smtpd_tls_chain_files": f"{pair['privatekey']}, {pair['certificate']}",
        **more,
    }


def next_hop(port: int, **tls: Any) -> dict[str, Any]:
    return {"connection": {"mode": "smarthost", "server": "127.0.0.1", "port": port}, "tls": tls}


@pytest.mark.parametrize(
    ("mode", "ending"), [("optional", "unverified"), ("require", "unverified"), ("require_verify", "verified")]
)
async def test_postfix_takes_mail_under_tls(mode: str, ending: str, postfix: Starts, authority: Authority) -> None:
    async with (
        postfix(**served(authority.issue("127.0.0.1"))) as peer,
        routing({}, **next_hop(peer.port, mode=mode, ca=str(authority.file))) as routed,
    ):
        results = await routed.send("bob@example.test", "carol@example.test")
        assert [result.result for result in results] == ["success"] * 2
        assert {result.spoken.tls for result in results} == {f"TLSv1.3 TLS_AES_256_GCM_SHA384 {ending}"}
        line = await peer.until_said("TLS connection established from")
        assert "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384" in line
        await peer.until_said("to=<carol@example.test>")


async def test_several_messages_share_a_connection_to_postfix(postfix: Starts, authority: Authority) -> None:
    async with (
        postfix(**served(authority.issue("127.0.0.1"))) as peer,
        routing({}, **next_hop(peer.port, mode="require")) as routed,
    ):
        for _ in range(3):
            assert (await routed.send_one()).result == "success"
        await peer.until_said("status=sent")
        assert peer.log.count("TLS connection established from") == 1


async def test_postfix_that_demands_our_certificate_gets_it(postfix: Starts, authority: Authority) -> None:
    ours = authority.issue("client.example")
    demands = {
        "smtpd_tls_CAfile": str(authority.file),
        "smtpd_tls_security_level": "encrypt",
        "smtpd_tls_req_ccert": "yes",
    }
    async with postfix(**served(authority.issue("127.0.0.1"), **demands)) as peer:
        async with routing({}, **next_hop(peer.port, mode="require", **ours)) as routed:
            assert (await routed.send_one()).result == "success"
            line = await peer.until_said("TLS connection established from")
            assert line.partition(": ")[2].startswith("Trusted")
        async with routing({}, **next_hop(peer.port, mode="require")) as routed:
            assert (await routed.send_one()).outcome.kind == "deferred"


async def test_postfix_that_demands_tls_refuses_us_without_it(postfix: Starts, authority: Authority) -> None:
    settings = served(authority.issue("127.0.0.1"), smtpd_tls_security_level="encrypt")
    async with postfix(**settings) as peer, routing({}, **next_hop(peer.port, mode="disabled")) as routed:
        result = await routed.send_one()
        assert (result.outcome.kind, result.outcome.enhanced, result.spoken.tls) == ("deferred", "4.7.0", "none")


async def test_postfix_without_tls_gets_mail_only_in_mode_optional(postfix: Starts) -> None:
    async with postfix() as peer:
        async with routing({}, **next_hop(peer.port, mode="optional")) as routed:
            result = await routed.send_one()
            assert (result.result, result.spoken.tls) == ("success", "none")
        async with routing({}, **next_hop(peer.port, mode="require")) as routed:
            result = await routed.send_one()
            assert (result.outcome.kind, result.outcome.enhanced) == ("deferred", "4.7.5")


async def test_postfix_relays_to_us_under_tls_that_it_verifies(
    postfix: Starts, authority: Authority, database: str
) -> None:
    ours = {"tls": {**authority.issue("127.0.0.1", "localhost"), "required": True}}
    async with (
        serving(database, server=ours) as port,
        postfix(
            default_transport="smtp",
            relayhost=f"[localhost]:{port}",
            smtp_tls_security_level="secure",
            smtp_tls_secure_cert_match="localhost",
            smtp_tls_CAfile=str(authority.file),
        ) as peer,
    ):
        connection = await SmtpConnection.open("127.0.0.1", peer.port, hostname="client.example", timeouts=Timeouts())
        assert (await connection.send(to("bob@example.test"))).fault is None
        await connection.close()
        assert "status=sent (250" in await peer.until_said("to=<bob@example.test>")
        line = await peer.until_said("TLS connection established to")
        assert line.partition("]: ")[2].startswith("Verified")
        assert "TLSv1.3 with cipher TLS_AES_256_GCM_SHA384" in line


async def test_the_attempt_row_has_the_negotiated_tls(
    system: System, books: Books, postfix: Starts, authority: Authority
) -> None:
    async with postfix(**served(authority.issue("127.0.0.1"))) as peer:
        smtpd = await system.smtpd()
        await system.worker(peer.port, transport={"tls": {"mode": "require_verify", "ca": str(authority.file)}})
        await books.submit(smtpd, [Sample("n-000000@origin.example", ("bob@example.test",), MESSAGE)])
        await system.until_finished()
        rows = await system.rows("SELECT outcome, tls FROM attempts")
        assert rows == [("delivered", "TLSv1.3 TLS_AES_256_GCM_SHA384 verified")]
        await peer.until_said("to=<bob@example.test>")
