"""test_backscatter — an untrusted client causes no notification, no high priority and no delayed mail

Owns: parameters of MAIL and RCPT from a client that may not relay, and reports to our own addresses.
See: RFC 3461 section 4; RFC 4865; RFC 6710 section 4.1; docs/how-to/deliver/bounces.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from queued.deliver import Deferral
from queued.outcome.ageing import aged
from queued.reports.suppression_screen import Screen, Screening
from shared.config.queued.transport import Retry
from shared.config.suppression import Suppression
from shared.postgres import database as db
from tests.fixtures.daemons.serving import Dialogue, serving
from tests.fixtures.database.results import FAILED, claim, finished, running_recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.fixtures.database.factory import Factory

ACCEPT = {"accept": ["bounces.example"]}
STRANGERS: dict[str, Any] = {"relay": {"networks": ["192.0.2.0/24"]}, "suppression": ACCEPT}
FRIENDS: dict[str, Any] = {"suppression": ACCEPT}
ALL = b"SUCCESS,FAILURE,DELAY"


@pytest.fixture
async def screen(database: str) -> AsyncIterator[Screen]:
    """A worker's, which reads reports to bounces.example."""
    pool = await db.open_pool(database, "screen", 2)
    yield Screen(pool, Screening(Suppression.model_validate({"addresses": ["bounces.example"]})))
    await pool.close()


async def submitted(factory: Factory, mail: bytes = b"", rcpt: bytes = b"", **settings: Any) -> Any:
    """The row of a report with a forged sender."""
    async with serving(factory.uri, **settings) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<victim@example.com>" + mail)).startswith("250 2.1.0")
        assert (await client.ask(b"RCPT TO:<b@bounces.example>" + rcpt)).startswith("250 2.1.5")
        assert (await client.data()).startswith("250 2.0.0")
    [row] = factory.queue()
    return row


@pytest.mark.parametrize(
    ("mail", "rcpt"),
    [
        (b"", b""),
        (b"", b" NOTIFY=" + ALL),
        (b" RET=FULL ENVID=x", b" NOTIFY=" + ALL + b" ORCPT=rfc822;c@example.com"),
    ],
)
async def test_an_untrusted_client_causes_no_notification(factory: Factory, mail: bytes, rcpt: bytes) -> None:
    """Not of success and not of failure: here an operator bounces the mail."""
    row = await submitted(factory, mail, rcpt, **STRANGERS)
    assert row.metadata["_dsn"] == {"notify": ["NEVER"]}
    factory.sql("UPDATE pillarbox.queue SET status = 'BOUNCE'")
    factory.sql("SELECT * FROM pillarbox.maintain_finish(now(), 'operator', 10)")
    assert [each.result for each in factory.archive()] == ["bounced"]
    assert factory.sql("SELECT * FROM pillarbox.notices") == []


async def test_an_untrusted_client_gets_errors_for_invalid_dsn_parameters(factory: Factory) -> None:
    async with serving(factory.uri, **STRANGERS) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<a@b.example> RET=SOME")).startswith("501 5.5.4")
        assert (await client.ask(b"MAIL FROM:<a@b.example>")).startswith("250")
        assert (await client.ask(b"RCPT TO:<b@bounces.example> NOTIFY=ALWAYS")).startswith("501 5.5.4")


async def test_the_dsn_parameters_of_a_relay_client_are_kept(factory: Factory) -> None:
    row = await submitted(factory, b" RET=HDRS", b" NOTIFY=" + ALL, **FRIENDS)
    assert row.metadata["_dsn"] == {"ret": "HDRS", "notify": ["DELAY", "FAILURE", "SUCCESS"]}


@pytest.mark.parametrize("becomes", ["read", "failed", "late"])
async def test_a_report_to_our_own_address_causes_no_notification(
    factory: Factory, database: str, screen: Screen, becomes: str
) -> None:
    """It may come from a mail exchanger of ours, which may relay and passes on the parameters of its client."""
    await submitted(factory, b"", b" NOTIFY=" + ALL, **FRIENDS)
    [c] = await claim(database)
    async with running_recorder(database, without_notice=screen.is_report) as recorder:
        match becomes:
            case "read":
                results, left = await screen.look([c], b"Subject: not a report\r\n\r\n")
                assert ([each.result for each in results], left) == (["success"], ())
            case "failed":
                results = [finished(c, FAILED, "failed")]
            case _:
                schedule = Retry.model_validate({"notice": "1h"})
                old = c._replace(received=c.received - timedelta(hours=2))
                results, parked, _ = aged(
                    (old,), Deferral(600.0, "suspended", stopped="us"), schedule, may_notify=recorder.may_notify
                )
                assert (results, parked) == ([], (old,))
        recorder.add(results)
        await recorder.drained()
    assert factory.sql("SELECT * FROM pillarbox.notices") == []


@pytest.mark.parametrize("hold", [b"HOLDFOR=60", b"HOLDUNTIL=2099-01-01T00:00:00Z"])
async def test_an_untrusted_client_cannot_delay_the_release_of_mail(factory: Factory, hold: bytes) -> None:
    async with serving(factory.uri, **STRANGERS) as port, Dialogue(port) as client:
        assert (await client.ask(b"MAIL FROM:<victim@example.com> " + hold))[:9] in {"550 5.7.1", "501 5.5.4"}
        assert (await client.ask(b"MAIL FROM:<victim@example.com> HOLDFOR=60")).startswith("550 5.7.1")


async def test_only_relay_clients_get_a_priority_above_0(factory: Factory) -> None:
    """The reply is 250 all the same: RFC 6710 has the server grant less than was asked."""
    for settings, wanted, granted in ((STRANGERS, 9, 0), (STRANGERS, -9, -9), (FRIENDS, 9, 9)):
        row = await submitted(factory, b" MT-PRIORITY=%d" % wanted, **settings)
        assert row.priority == granted
        factory.sql("DELETE FROM pillarbox.queue")
