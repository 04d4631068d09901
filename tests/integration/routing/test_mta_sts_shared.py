"""test_mta_sts_shared — a worker's transports share fetched policies, also after a reload

Owns: proofs about the cache that queued.equipment makes for all transports.
See: tests/integration/routing/test_mta_sts.py for the cache itself.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from queued.equipment import Delivering, Equipment
from queued.routing.resolver import ResolverClosedError
from queued.routing.route import Hop
from shared.config.queued.settings import QueuedConfig
from tests.fixtures.heard import until
from tests.fixtures.peers.fake_dns import FakeDns
from tests.fixtures.peers.web.policy_host import PolicyHost, answer, leading_to, policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from tests.fixtures.peers.certificates import Authority

DOMAIN: Final = "example.test"
MX: Final = f"mx.{DOMAIN}"
HOPS: Final = (Hop("127.0.0.1", 25, MX),)


def config(dns: FakeDns, *transports: dict[str, Any], **resolving: Any) -> QueuedConfig:
    """Transports by MX, each of which says something besides."""
    by_mx = [{"connection": {"mode": "mx"}, **each} for each in transports]
    routing = {"dns": {"servers": [dns.where], **resolving}}
    return QueuedConfig.model_validate({"transports": by_mx, "routing": routing})


@asynccontextmanager
async def publishing(authority: Authority, octets: bytes | None) -> AsyncIterator[tuple[PolicyHost, FakeDns]]:
    """A domain that announces a policy, and the host that has it."""
    async with (
        FakeDns({(f"_mta-sts.{DOMAIN}", "TXT"): ['"v=STSv1; id=1;"']}) as dns,
        PolicyHost(authority.issue(f"mta-sts.{DOMAIN}"), octets) as host,
    ):
        with leading_to(host):
            yield host, dns


async def proof(delivering: Delivering, transport: str) -> str:
    """The proof that this transport requires of the domain's exchanger."""
    plan = await delivering.transports[transport].tls.plan(DOMAIN, HOPS)
    return plan[HOPS[0]].proof


async def test_a_policy_is_fetched_once_for_all_transports_and_every_reload(authority: Authority) -> None:
    tls = {"ca": str(authority.file)}
    async with publishing(authority, answer(policy(MX))) as (host, dns):
        delivering = Delivering(config(dns, {"id": "a", "tls": tls}, {"id": "b", "tls": tls}))
        assert [await proof(delivering, each) for each in ("a", "b")] == ["certificate"] * 2
        assert len(host.requests) == 1
        # The transports are others now, and so is the resolver; the server no longer has the policy.
        host.answer = answer(b"", "404 Not Found")
        changed = config(dns, {"id": "a", "tls": tls, "recipients": 7}, {"id": "c", "tls": tls}, timeout="3s")
        delivering.use(Equipment(changed, delivering.equipment))
        assert [await proof(delivering, each) for each in ("a", "c")] == ["certificate"] * 2
        assert len(host.requests) == 1
        await delivering.close()


async def test_transports_with_other_authorities_or_routes_fetch_separately(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = type(authority)(tmp_path_factory.mktemp("elsewhere"))
    transports = (
        {"id": "usual", "tls": {"ca": str(authority.file)}},
        {"id": "stranger", "tls": {"ca": str(elsewhere.file)}},
        {"id": "inside", "tls": {"ca": str(authority.file)}, "allow": {"private": True}},
    )
    async with publishing(authority, answer(policy(MX))) as (host, dns):
        delivering = Delivering(config(dns, *transports))
        assert await proof(delivering, "usual") == "certificate"
        assert await proof(delivering, "stranger") == "none"
        assert len(host.requests) == 1  # the handshake with the second ended before its request
        assert await proof(delivering, "inside") == "certificate"
        assert len(host.requests) == 2
        await delivering.close()


async def test_a_stop_does_not_wait_for_a_policy(authority: Authority) -> None:
    async with publishing(authority, None) as (host, dns):
        delivering = Delivering(config(dns, {"id": "a", "tls": {"ca": str(authority.file)}}))
        asking = asyncio.create_task(proof(delivering, "a"))
        await until(lambda: host.requests, "the policy to be asked for")
        await delivering.close()
        [ended] = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(ended, ResolverClosedError)
