"""test_reach — doctor talks to the hosts that transports name, without sending mail, and asks DNS for our names

Owns: proofs about operate/doctor/reach.py and the check mail.flow.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from operate.doctor import reach
from operate.doctor.checks import Severity
from operate.doctor.reach import named
from queued.routing.dns_answer import Answer
from queued.routing.resolver import Resolver
from scripts.sink.server import Sink
from shared.config.queued.routing import Routing
from shared.config.queued.settings import QueuedConfig
from shared.config.smtpd.settings import SmtpdConfig
from tests.fixtures.peers.fake_dns import SILENT, FakeDns
from tests.fixtures.peers.relay import Relay

if TYPE_CHECKING:
    from operate.doctor.checks import Finding
    from tests.fixtures.database.examined import Patient
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.peers.certificates import Authority

NONE = 1  # a port where nothing listens


def queued(*transports: dict[str, Any]) -> QueuedConfig:
    """queued.yaml with these transports."""
    environment = {"database": {"uri": "postgresql:///none"}}
    named_ones = [{"id": f"t{number}", "hostname": "us.example", **each} for number, each in enumerate(transports, 1)]
    return QueuedConfig.model_validate(
        {"environment": environment, "workers": [{"id": "w", "where": "true"}], "transports": named_ones}
    )


def to(*ports: int, **more: Any) -> dict[str, Any]:
    """A transport with these hosts."""
    return {"connection": {"hosts": [{"server": "127.0.0.1", "port": port} for port in ports]}, **more}


async def reached(config: QueuedConfig, refused: frozenset[str] = frozenset()) -> list[Finding]:
    """The findings about hosts, with a resolver as doctor has one."""
    resolver = Resolver(config.routing.dns)
    try:
        return await reach.reached(config, refused, resolver)
    finally:
        await resolver.close()


async def test_a_host_that_answers_is_fine_and_gets_no_mail() -> None:
    async with Sink() as sink:
        [finding] = await reached(queued(to(sink.port)))
        assert sink.connections == 1
    assert (finding.verdict, finding.found) == (Severity.OK, f"transport t1: 127.0.0.1:{sink.port}: no TLS")
    assert sink.received == []
    assert sink.violations == []


async def test_an_unreachable_transport_is_an_alarm_and_one_of_two_hosts_a_warning() -> None:
    async with Sink() as sink, Sink(greeting=554) as closed:
        alone, one_of_two, refusing = await reached(queued(to(NONE), to(NONE, sink.port), to(closed.port)))
    assert (alone.verdict, one_of_two.verdict, refusing.verdict) == (Severity.ALARM, Severity.WARN, Severity.ALARM)
    assert alone.found == f"transport t1: 127.0.0.1:{NONE}: connect to 127.0.0.1:{NONE}: Connection refused"
    assert "host refused to talk to us: 554" in refusing.found
    assert all("`pillarbox relay` names another one" in finding.remedy for finding in (alone, one_of_two, refusing))


async def test_hosts_of_routes_are_tried_and_mail_exchangers_are_not() -> None:
    async with Sink() as sink:
        route = {"connection": {"mode": "mx"}, "routes": {"example.com": f"127.0.0.1:{sink.port}"}}
        [finding] = await reached(queued(route))
        assert f"127.0.0.1:{sink.port}: no TLS" in finding.found
    [finding] = await reached(queued({"connection": {"mode": "mx"}}))
    assert finding.found == "no transport names hosts to try"


async def test_a_transport_without_a_next_hop_is_not_tried_at_this_host() -> None:
    [finding] = await reached(queued({}))
    assert (finding.verdict, finding.found) == (Severity.OK, "no transport names hosts to try")


@pytest.mark.parametrize(("password", "verdict"), [("right", Severity.OK), ("wrong", Severity.ALARM)])
async def test_required_tls_and_the_login_are_checked(authority: Authority, password: str, verdict: Severity) -> None:
    secret = authority.folder / "secret"
    secret.write_text(f"{password}\n")
    secret.chmod(0o600)
    auth = {"user": "alice", "password": {"file": str(secret)}}
    async with Relay(authority, "right") as relay:
        connection = {"server": "127.0.0.1", "port": relay.port, "auth": auth}
        tls = {"implicit": True, "ca": str(authority.file)}
        [finding] = await reached(queued({"connection": connection, "tls": tls}))
        assert finding.verdict is verdict
        assert ("logged in" in finding.found) == (password == "right")  # noqa: S105 - of a test
        assert len(relay.logins) == 1
        [finding] = await reached(queued({"connection": connection, "tls": tls}), frozenset({"t1"}))
        assert "not logged in" in finding.found
        assert len(relay.logins) == 1, "an account is not locked by doctor"
        [finding] = await reached(queued({"connection": connection, "tls": {"implicit": True}}))
        assert finding.verdict is Severity.ALARM
        assert "certificate" in finding.found


def test_our_host_names_are_checked_in_dns() -> None:
    found: Answer[object] = Answer("found", ())
    nothing: Answer[object] = Answer("nothing")
    failed: Answer[object] = Answer("failed")
    assert named({"a.example": found}, by_mx=True).verdict is Severity.OK
    assert named({"a.example": nothing}, by_mx=True).verdict is Severity.WARN
    assert named({"a.example": nothing}, by_mx=False).verdict is Severity.NOTE
    absent = named({"a.example": Answer("unknown")}, by_mx=True)
    assert (absent.verdict, "has no address in DNS" in absent.found) == (Severity.WARN, True)
    assert named({"a.example": failed}, by_mx=True).verdict is Severity.ALARM
    assert named({"a.example": None, "b.example": found}, by_mx=False).verdict is Severity.NOTE


@pytest.mark.parametrize("by_mx", [True, False])
async def test_a_name_server_that_does_not_answer_is_named(*, by_mx: bool) -> None:
    records = {("us.example", "A"): ["192.0.2.1"]}
    async with (
        FakeDns(records) as answers,
        FakeDns({("us.example", kind): [SILENT] for kind in ("A", "AAAA")}) as silent,
    ):
        transport = {"connection": {"mode": "mx"}} if by_mx else to(NONE)
        config = queued(transport)
        smtpd = SmtpdConfig.model_validate({"servers": [{"id": "s", "hostname": "us.example"}]})

        async def names(*servers: FakeDns) -> Finding:
            given = {"dns": {"servers": [server.where for server in servers], "timeout": "2s"}}
            asking = config.model_copy(update={"routing": Routing.model_validate(given)})
            resolver = Resolver(asking.routing.dns)
            resolver.patience = None
            try:
                return await reach.names(smtpd, asking, resolver)
            finally:
                await resolver.close()

        assert (await names(answers)).verdict is Severity.OK
        found = await names(answers, silent)
        assert found.verdict is (Severity.WARN if by_mx else Severity.NOTE)
        assert found.found == f"name server {silent.where} does not answer; the others do"
        found = await names(silent)
        assert found.verdict is (Severity.ALARM if by_mx else Severity.NOTE)
        assert found.found.startswith("DNS does not answer for us.example")


async def flow(patient: Patient) -> Finding:
    [finding] = await patient.about("mail.flow")
    return finding


def delivered(factory: Factory, ago: timedelta) -> None:
    factory.sql(
        """INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, transportid,
                                           recipientdomain, size, outcome, scope, duration)
           VALUES (now() - %(ago)s, 1, gen_random_uuid(), 1, 1, 'w', 'default', 'e.example', 1, 'delivered',
                   'recipient', '1s')""",
        ago=ago,
    )


async def test_waiting_mail_without_any_delivery_is_reported(patient: Patient, factory: Factory) -> None:
    assert (await flow(patient)).verdict is Severity.OK
    old = datetime.now(UTC) - timedelta(hours=2)
    factory.row(received=old, domain="one.example")
    assert (await flow(patient)).verdict is Severity.NOTE, "one domain may be down"
    factory.row(received=old, domain="two.example")
    finding = await flow(patient)
    assert (finding.verdict, finding.found) == (
        Severity.ALARM,
        "nothing was delivered in a day, but mail waits: 2 recipients of 2 domains",
    )
    delivered(factory, timedelta(minutes=30))
    assert (await flow(patient)).verdict is Severity.WARN
    delivered(factory, timedelta(minutes=1))
    assert (await flow(patient)).verdict is Severity.OK


async def test_scheduled_mail_is_not_counted_as_waiting(patient: Patient, factory: Factory) -> None:
    for domain in ("one.example", "two.example"):
        factory.row(received=datetime.now(UTC) - timedelta(hours=2), domain=domain, due=timedelta(hours=5))
    assert (await flow(patient)).verdict is Severity.OK
