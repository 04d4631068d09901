"""test_policy_phases — rules at every phase of a real session, from the socket to the rows

Owns: proofs that the decisions of smtpd/policy/engine.py reach clients and rows; lists by file and by query;
    rates. See: tests/unit/policy/test_policy.py for each condition.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from shared.mail.partition import partition_id
from tests.fixtures.daemons.serving import MESSAGE, Dialogue, serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.database.factory import Factory
    from tests.fixtures.heard import Heard

LOCAL = {"client": ["127.0.0.0/8"]}


def policy(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"rules": [{"id": f"rule-{number}", **rule} for number, rule in enumerate(rules)], **more}


async def test_a_client_can_be_refused_instead_of_greeted(factory: Factory) -> None:
    written = policy({"phase": "connect", "if": LOCAL, "then": {"reject": "554 5.7.1 Not from there"}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port, ehlo=None) as client:
        assert client.greeting == ["554 5.7.1 Not from there"]


async def test_each_command_can_be_rejected_or_deferred(factory: Factory) -> None:
    written = policy(
        {"phase": "helo", "if": {"helo": ["bad.*"]}, "then": {"reject": "550 5.7.1 Not you"}},
        {"phase": "mailfrom", "if": {"senderdomain": ["*.bad.example"]}, "then": {"reject": "550 5.7.1 Not from it"}},
        {"phase": "mailfrom", "if": {"size": ">1000"}, "then": {"defer": "452 4.3.4 Not now"}},
        {"if": {"recipientdomain": ["closed.example"]}, "then": {"reject": "550 5.7.1 Not to it"}},
        {"if": {"recipients": ">1"}, "then": {"defer": "452 4.5.3 One at a time"}},
        {"phase": "eod", "if": {"header": {"Subject": ["*lottery*"]}}, "then": {"reject": "554 5.7.1 No luck"}},
    )
    async with serving(factory.uri, policy=written) as port, Dialogue(port, ehlo=None) as client:
        assert await client.ask(b"EHLO bad.example") == "550 5.7.1 Not you"
        assert (await client.ask(b"EHLO good.example")).startswith("250")
        assert await client.ask(b"MAIL FROM:<a@very.bad.example>") == "550 5.7.1 Not from it"
        assert await client.ask(b"MAIL FROM:<a@b.example> SIZE=1001") == "452 4.3.4 Not now"
        assert (await client.ask(b"MAIL FROM:<a@b.example> SIZE=1000")).startswith("250")
        assert await client.ask(b"RCPT TO:<x@closed.example>") == "550 5.7.1 Not to it"
        assert (await client.ask(b"RCPT TO:<x@open.example>")).startswith("250")
        assert await client.ask(b"RCPT TO:<y@open.example>") == "452 4.5.3 One at a time"
        assert await client.data(b"Subject: Lottery!\r\n\r\nbody\r\n") == "554 5.7.1 No luck"
        assert (await client.submit(MESSAGE)).startswith("250")
    assert [row.recipientlocalpart for row in factory.queue()] == ["b"]


async def test_changes_of_all_phases_add_up_in_the_row(factory: Factory) -> None:
    written = policy(
        {"phase": "connect", "if": LOCAL, "then": {"metadata": {"from": "connect {client}"}, "transport": "first"}},
        {"phase": "helo", "then": {"metadata": {"from": "helo", "helo": "{helo}"}, "transport": "second"}},
        {"phase": "mailfrom", "then": {"priority": -3, "addheader": {"X-Sender": "{sender}"}}},
        {"if": {"recipientdomain": ["held.example"]}, "then": {"hold": "q", "holdreason": "for {recipient}"}},
        {"phase": "eod", "if": {"header": {"X-Tenant": ["acme"]}}, "then": {"metadata": {"tenant": "acme"}}},
        {"phase": "eod", "if": {"recipientdomain": ["*.example"]}, "then": {"metadata": {"end": "{recipient}"}}},
        {"phase": "eod", "then": {"addheader": {"X-Size": "{size}"}}},
        partitionkey="metadata:tenant",
    )
    content = b"X-Tenant: acme\r\n" + MESSAGE
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        assert (await client.submit(content, b"<a@held.example>", b"<b@example.com>")).startswith("250")
    held, plain = factory.queue()
    assert (held.status, plain.status) == ("HOLD", "DELIVER")
    assert held.metadata == {
        "from": "connect 127.0.0.1",
        "helo": "client.example",
        "tenant": "acme",
        "end": "a@held.example",
        "_partid": partition_id("acme", 6),
        "_quarantineid": "q",
        "_holdreason": "for a@held.example",
        "_policyrule": "rule-0,rule-1,rule-2,rule-3,rule-4,rule-5,rule-6",
    }
    assert plain.metadata["_partid"] == partition_id("acme", 6)
    assert "end" not in plain.metadata
    assert {(row.transportid, row.priority) for row in (held, plain)} == {("first", -3)}
    [stored] = factory.bodies().values()
    added = f"X-Sender: a@sender.example\r\nX-Size: {len(content)}\r\n".encode()
    assert bytes(stored.content).endswith(added + content)


async def test_a_client_cannot_inject_a_header_through_an_added_one(factory: Factory) -> None:
    written = policy({"phase": "mailfrom", "then": {"addheader": {"X-Helo": "{helo}"}}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port, ehlo=None) as client:
        assert (await client.ask("HELO a.example\x85X-Evil:1".encode()))[:3] in {"250", "501"}
        await client.ask(b"HELO a.example")
        assert (await client.submit(MESSAGE)).startswith("250")
    [stored] = factory.bodies().values()
    assert b"\r\nX-Helo: a.example\r\n" in bytes(stored.content)


async def test_a_standing_hold_applies_to_mail_accepted_by_rules(factory: Factory) -> None:
    holds = [
        {"id": "review", "if": {"senderdomain": ["sender.example"]}, "hold": "standing", "holdreason": "by {sender}"},
        {"id": "large", "if": {"size": ">1MiB"}, "hold": "large"},
    ]
    written = policy({"then": {"accept": True}}, {"phase": "eod", "then": {"accept": True}}, holds=holds)
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        assert (await client.submit(MESSAGE)).startswith("250")
        large = MESSAGE + b"x" * 70 + (b"x" * 70 + b"\r\n") * 20_000
        assert (await client.submit(large + b"\r\n", sender=b"<>")).startswith("250")
    one, two = factory.queue()
    assert (one.status, one.metadata["_quarantineid"], one.metadata["_holdreason"]) == (
        "HOLD",
        "standing",
        "by a@sender.example",
    )
    assert (two.status, two.metadata["_quarantineid"]) == ("HOLD", "large")


async def test_changes_at_helo_end_with_the_next_helo(factory: Factory) -> None:
    written = policy({"phase": "helo", "if": {"helo": ["held"]}, "then": {"hold": "q"}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port, ehlo=b"EHLO held") as client:
        await client.submit(MESSAGE)
        await client.ask(b"EHLO other")
        await client.submit(MESSAGE)
    assert [row.status for row in factory.queue()] == ["HOLD", "DELIVER"]


async def test_a_delay_applies_to_one_client_only(factory: Factory) -> None:
    written = policy({"phase": "helo", "if": {"helo": ["slow"]}, "then": {"delay": "1m"}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port, ehlo=None) as slow:
        await slow.send(b"EHLO slow\r\n")
        async with Dialogue(port) as other:
            assert (await other.submit(MESSAGE)).startswith("250")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await slow.reply()
        slow.writer.close()


async def test_the_reply_follows_a_short_delay(factory: Factory) -> None:
    written = policy({"if": {"recipientdomain": ["slow.example"]}, "then": {"delay": "50ms"}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        before = asyncio.get_running_loop().time()
        assert (await client.submit(MESSAGE, b"<a@slow.example>")).startswith("250")
        assert asyncio.get_running_loop().time() - before >= 0.05


async def test_a_rate_counts_matching_mail_and_its_rule_applies_above_it(factory: Factory) -> None:
    condition = {"recipientdomain": ["few.example"], "rate": {"key": ["client"], "over": "2/1h"}}
    written = policy({"if": condition, "then": {"defer": "450 4.7.1 Enough of it"}})
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        await client.ask(b"MAIL FROM:<a@b.example>")
        replies = [await client.ask(b"RCPT TO:<x@%b.example>" % to) for to in (b"few", b"any", b"few", b"any", b"few")]
    assert [reply[:3] for reply in replies] == ["250", "250", "250", "250", "450"]


async def test_a_list_in_a_file_is_read_again_when_it_changes(factory: Factory, tmp_path: Path, heard: Heard) -> None:
    file = tmp_path / "closed"
    file.write_text("# closed for now\nclosed.example\n*.shut.example  # and below\n")
    written = policy(
        {"if": {"in": {"list": "closed", "of": "recipientdomain"}}, "then": {"reject": "550 5.7.1 Closed"}},
        lists=[{"id": "closed", "file": str(file)}],
    )
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:

        async def asked(domain: str) -> str:
            await client.ask(b"RSET")
            await client.ask(b"MAIL FROM:<a@b.example>")
            return (await client.ask(f"RCPT TO:<x@{domain}>".encode()))[:3]

        assert [await asked(d) for d in ("Closed.example", "a.shut.example", "shut.example")] == ["550", "550", "250"]
        file.write_text("shut.example\n")
        assert [await asked(d) for d in ("closed.example", "shut.example")] == ["250", "550"]
        file.write_bytes(b"\xff\xfe")
        assert [await asked(d) for d in ("closed.example", "shut.example")] == ["250", "550"]
        file.unlink()
        assert [await asked(d) for d in ("closed.example", "shut.example")] == ["250", "550"]
        file.write_text("closed.example\n")
        assert [await asked(d) for d in ("closed.example", "shut.example")] == ["550", "250"]
    assert [event["entries"] for event in heard.all("policy.list_read")] == [1, 1]
    assert len(heard.all("policy.list_unreadable")) == 2


async def test_a_list_by_query_uses_a_bound_value_and_is_cached(factory: Factory) -> None:
    factory.sql("CREATE TABLE customers (name text PRIMARY KEY, suspended boolean NOT NULL)")
    factory.sql("INSERT INTO customers VALUES ('a@b.example', true), ('it''s@b.example', false)")
    query = "SELECT 1 FROM customers WHERE suspended AND name = %(value)s"
    written = policy(
        {
            "phase": "mailfrom",
            "if": {"in": {"list": "suspended", "of": "sender"}},
            "then": {"reject": "550 5.7.1 Suspended"},
        },
        lists=[{"id": "suspended", "query": query, "keep": "1h"}],
    )
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        assert await client.ask(b"MAIL FROM:<a@b.example>") == "550 5.7.1 Suspended"
        assert (await client.ask(b"MAIL FROM:<it's@b.example>")).startswith("250")
        await client.ask(b"RSET")
        factory.sql("UPDATE customers SET suspended = NOT suspended")
        assert await client.ask(b"MAIL FROM:<a@b.example>") == "550 5.7.1 Suspended"
        assert (await client.ask(b"MAIL FROM:<it's@b.example>")).startswith("250")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 1 FROM nowhere WHERE name = %(value)s",
        "DELETE FROM messages WHERE %(value)s <> '' RETURNING 1",
        "SELECT 1 FROM pg_sleep(60) WHERE %(value)s <> ''",
    ],
    ids=["broken", "writes", "slow"],
)
async def test_a_failed_query_is_451_without_details(query: str, factory: Factory, heard: Heard) -> None:
    factory.message()
    written = policy(
        {"if": {"in": {"list": "odd", "of": "recipientdomain"}}, "then": {"accept": True}},
        lists=[{"id": "odd", "query": query, "timeout": "300ms"}],
    )
    async with serving(factory.uri, policy=written) as port, Dialogue(port) as client:
        await client.ask(b"MAIL FROM:<a@b.example>")
        assert await client.ask(b"RCPT TO:<x@y.example>") == "451 4.3.0 Local error in processing, try again"
        assert await client.ask(b"RCPT TO:<x@z.example>") == "451 4.3.0 Local error in processing, try again"
    assert len(heard.all("policy.list_unavailable")) == 2
    assert len(factory.bodies()) == 1
