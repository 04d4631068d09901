"""test_mail_follows_mx — real daemons deliver one message to the mail exchangers of several domains

Owns: `mode: mx` from queued.yaml to the recipients' hosts, and the history of domains without a host.
See: tests/integration/routing/test_routing.py and test_failover.py for each case by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.demo.sample_mail import Sample
from tests.fixtures.daemons.routed import sinks
from tests.fixtures.peers.fake_dns import SERVFAIL, FakeDns
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

CONTENT = b"Subject: to many\r\n\r\nHello.\r\n"
ZONE = {
    ("one.test", "MX"): ["10 dead.test.", "20 mx1.test."],
    ("two.test", "MX"): ["10 mx2.test."],
    ("none.test", "MX"): ["0 ."],
    ("later.test", "MX"): [SERVFAIL],
    ("dead.test", "A"): ["127.0.0.9"],
    ("mx1.test", "A"): ["127.0.0.2"],
    ("mx2.test", "A"): ["127.0.0.3"],
}


async def test_each_domain_is_delivered_to_its_own_exchanger(system: System, books: Books) -> None:
    async with FakeDns(ZONE) as dns, sinks("2", "3", "4") as (one, two, override):
        smtpd = await system.smtpd()
        await system.worker(
            one.port,
            transport={
                "connection": {"mode": "mx"},
                "allow": {"private": True},
                "routes": {".example.test": f"127.0.0.4:{one.port}"},
            },
            routing={"dns": {"servers": [dns.where]}},
        )
        recipients = (
            "a@one.test",
            "b@one.test",
            "c@two.test",
            "d@none.test",
            "e@later.test",
            "f@shop.example.test",
            "g@nowhere.test",
        )
        await books.submit(smtpd, [Sample("n-000000@origin.example", recipients, CONTENT)])
        await eventually(lambda: dns.asked.count(("later.test", "MX")) >= 2, "the failed DNS query is repeated")
        dns.records["later.test", "MX"] = ["10 mx2.test."]
        await system.until_finished()

        assert [record.recipients for record in one.received] == [("a@one.test", "b@one.test")]
        assert sorted(record.recipients for record in two.received) == [("c@two.test",), ("e@later.test",)]
        assert [record.recipients for record in override.received] == [("f@shop.example.test",)]
        assert await system.rows("SELECT recipientlocalpart, result FROM archive ORDER BY 1") == [
            ("a", "success"),
            ("b", "success"),
            ("c", "success"),
            ("d", "rejected"),
            ("e", "success"),
            ("f", "success"),
            ("g", "rejected"),
        ]
        attempts = await system.rows(
            "SELECT DISTINCT recipientlocalpart, outcome, scope, a.reply_enhanced, remote "
            "FROM attempts a JOIN archive q ON q.id = a.queue__id ORDER BY 1, 2"
        )
        assert attempts == [
            ("a", "delivered", "recipient", "2.0.0", f"mx1.test[127.0.0.2]:{one.port}"),
            ("b", "delivered", "recipient", "2.0.0", f"mx1.test[127.0.0.2]:{one.port}"),
            ("c", "delivered", "recipient", "2.0.0", f"mx2.test[127.0.0.3]:{one.port}"),
            ("d", "failed", "destination", "5.1.10", None),
            ("e", "deferred", "destination", "4.4.3", None),
            ("e", "delivered", "recipient", "2.0.0", f"mx2.test[127.0.0.3]:{one.port}"),
            ("f", "delivered", "recipient", "2.0.0", f"127.0.0.4:{one.port}"),
            ("g", "failed", "destination", "5.1.2", None),
        ]
