"""test_requiretls — mail with REQUIRETLS is never sent without TLS, and TLS-Required: No is heeded (RFC 8689)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.fixtures.daemons.routed import routing
from tests.fixtures.peers.tls_peer import TlsPeer, server_context
from tests.fixtures.peers.tlsa import tlsa
from tests.fixtures.peers.web.policy_host import PolicyHost, answer, leading_to, policy

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tests.fixtures.daemons.routed import Routed
    from tests.fixtures.peers.certificates import Authority

MX: Final = "mx.example.test"
ZONE: Final = {("example.test", "MX"): [f"10 {MX}."], (MX, "A"): ["127.0.0.1"]}
ABLE: Final = ("REQUIRETLS", "8BITMIME")


def domain(port: int, authority: Authority, *, signed: bool = True, **tls: Any) -> AbstractAsyncContextManager[Routed]:
    """example.test, its MX validated or not."""
    names = ["example.test"] if signed else []
    return routing(ZONE, signed=names, connection={"port": port}, tls={"ca": str(authority.file), **tls})


@pytest.mark.parametrize("mode", ["optional", "require_verify", "dane"])
async def test_requiretls_is_passed_to_a_verified_host(mode: str, authority: Authority) -> None:
    async with (
        TlsPeer(server_context(authority.issue(MX)), later=ABLE) as host,
        domain(host.port, authority, mode=mode) as routed,
    ):
        result = await routed.send_one(_requiretls=True)
        assert (result.result, result.spoken.tls) == ("success", "TLSv1.3 TLS_AES_256_GCM_SHA384 verified")
        [mail] = [command for command in host.commands if command.startswith(b"MAIL")]
        assert mail.endswith(b" REQUIRETLS")


async def test_other_mail_is_sent_without_requiretls(authority: Authority) -> None:
    async with (
        TlsPeer(server_context(authority.issue(MX)), later=ABLE) as host,
        domain(host.port, authority) as routed,
    ):
        assert (await routed.send_one()).result == "success"
        assert not any(b"REQUIRETLS" in command for command in host.commands)


async def test_a_host_without_requiretls_is_a_permanent_failure(authority: Authority) -> None:
    async with TlsPeer(server_context(authority.issue(MX))) as host, domain(host.port, authority) as routed:
        result = await routed.send_one(_requiretls=True)
        assert (result.outcome.kind, result.outcome.enhanced) == ("failed", "5.7.30")
        assert host.mails == []


async def test_another_host_that_offers_requiretls_gets_the_mail(authority: Authority) -> None:
    context = server_context(authority.issue("mx1.example.test", "mx2.example.test"))
    zone = {
        ("example.test", "MX"): ["10 mx1.example.test.", "20 mx2.example.test."],
        ("mx1.example.test", "A"): ["127.0.0.2"],
        ("mx2.example.test", "A"): ["127.0.0.3"],
    }
    async with (
        TlsPeer(context, host="127.0.0.2") as first,
        TlsPeer(context, host="127.0.0.3", port=first.port, later=ABLE) as second,
        routing(
            zone, signed=["example.test"], connection={"port": first.port}, tls={"ca": str(authority.file)}
        ) as routed,
    ):
        assert (await routed.send_one(_requiretls=True)).result == "success"
        assert (first.connections, first.mails, second.mails) == (1, [], ["TLSv1.3"])


@pytest.mark.parametrize("kind", ["clear", "stranger"])
async def test_an_unverified_host_gets_no_requiretls_mail(kind: str, authority: Authority) -> None:
    context = server_context(authority.issue("other.example")) if kind == "stranger" else None
    async with TlsPeer(context, offers=ABLE, later=ABLE) as host, domain(host.port, authority) as routed:
        result = await routed.send_one(_requiretls=True)
        assert (result.outcome.kind, result.outcome.enhanced, host.mails) == ("deferred", "4.7.5", [])
        assert "REQUIRETLS" in result.outcome.text


async def test_a_host_with_an_unvalidated_mx_name_gets_no_requiretls_mail(authority: Authority) -> None:
    async with (
        TlsPeer(server_context(authority.issue(MX)), later=ABLE) as host,
        domain(host.port, authority, signed=False) as routed,
    ):
        result = await routed.send_one(_requiretls=True)
        assert (result.outcome.kind, host.connections) == ("deferred", 0)
        assert "neither DNSSEC nor MTA-STS" in result.outcome.text


@pytest.mark.parametrize("mode", ["dane", "optional"])
async def test_with_tls_required_no_what_the_domain_publishes_does_not_count(mode: str, authority: Authority) -> None:
    """Its policy and its TLSA records ask for another certificate than the host has, so other mail waits."""
    stranger = server_context(authority.issue("stranger.example"))
    async with (
        TlsPeer(stranger) as host,
        PolicyHost(authority.issue("mta-sts.example.test"), answer(policy(MX))) as web,
    ):
        records = f"_{host.port}._tcp.{MX}"
        zone = ZONE | {
            ("_mta-sts.example.test", "TXT"): ['"v=STSv1; id=1;"'],
            (records, "TLSA"): [tlsa(3, 1, 1, authority.issue(MX, stem="other")["certificate"])],
        }
        signed = ["example.test", MX, records] if mode == "dane" else []
        tls = {"mode": mode, "ca": str(authority.file)}
        with leading_to(web):
            async with routing(zone, signed=signed, connection={"port": host.port}, tls=tls) as routed:
                assert (await routed.send_one()).outcome.enhanced == "4.7.5"
                assert (await routed.send_one(_requiretls=True, _tlsrequired="no")).outcome.enhanced == "4.7.5"
                assert host.mails == []
                result = await routed.send_one(_tlsrequired="no")
                assert (result.result, result.spoken.tls) == ("success", "TLSv1.3 TLS_AES_256_GCM_SHA384 unverified")


async def test_tls_required_no_changes_nothing_that_the_operator_demands(authority: Authority) -> None:
    stranger = server_context(authority.issue("stranger.example"))
    async with TlsPeer(stranger) as host, domain(host.port, authority, mode="require_verify") as routed:
        assert (await routed.send_one(_tlsrequired="no")).outcome.enhanced == "4.7.5"
        assert host.mails == []


async def test_a_configured_smart_host_counts_as_a_validated_name(authority: Authority) -> None:
    pair = authority.issue("127.0.0.1")
    async with TlsPeer(server_context(pair), later=ABLE) as host:
        smart = {"mode": "smarthost", "server": "127.0.0.1", "port": host.port}
        async with routing({}, connection=smart, tls={"ca": str(authority.file)}) as routed:
            assert (await routed.send_one(_requiretls=True)).result == "success"
            assert host.mails == ["TLSv1.3"]


@pytest.mark.parametrize("able", [True, False])
async def test_a_notification_uses_requiretls_only_if_offered(authority: Authority, *, able: bool) -> None:
    later = ABLE if able else ("8BITMIME",)
    async with (
        TlsPeer(server_context(authority.issue("stranger.example")), later=later) as host,
        domain(host.port, authority, signed=False, mode="optional") as routed,
    ):
        assert (await routed.send_one(sender=None, _requiretls=True)).result == "success"
        [mail] = [command for command in host.commands if command.startswith(b"MAIL FROM:<>")]
        assert mail.endswith(b" REQUIRETLS") == able
