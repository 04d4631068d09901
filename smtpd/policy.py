"""policy — what is to happen with one recipient

Owns: the decision where a recipient goes: partition, hold, metadata, transport. Pure.
Called by: smtpd.receive, once per recipient.
Guarantees: the first rule that matches decides, and only for what it names; without a rule a recipient is delivered by
    the default transport in the partition of its domain.
See: config/smtpd.yaml, `policy.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from shared.message import Address, Recipient
from shared.partition import ascii_domain, partition_id
from shared.states import Status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

    from shared.policy_config import Condition, Rule


@dataclass(frozen=True, slots=True)
class Origin:
    """Who submits: the peer's address, the authenticated user if any, and the sender (None: the null sender)."""

    client: str
    user: str | None
    sender: Address | None


def may_relay(origin: Origin, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether this client may send to anybody: it is authenticated, or its address is in a listed network."""
    return origin.user is not None or in_networks(origin.client, networks)


def decide(origin: Origin, recipient: Address, rules: Sequence[Rule], partitions: int) -> Recipient:
    """The queue row this recipient will be."""
    for rule in rules:
        if _matches(rule.condition, origin, recipient):
            then = rule.action
            held = {} if then.hold is None else {"_quarantineid": then.hold}
            return Recipient(
                recipient,
                partid=then.partition or partition_id(recipient.domain, partitions),
                status=Status.DELIVER if then.hold is None else Status.HOLD,
                transportid=then.transport or "default",
                metadata={**then.metadata, **held, "_policyrule": rule.id},
            )
    return Recipient(recipient, partid=partition_id(recipient.domain, partitions))


def in_networks(client: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether an IP address lies in one of the networks; an IPv4-mapped IPv6 address counts as the IPv4 one."""
    try:
        address = ip_address(client.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)


def _matches(condition: Condition, origin: Origin, recipient: Address) -> bool:
    """Every list that is given must contain its value; an empty one does not ask. The model has lowered domains."""
    sender = "" if origin.sender is None else str(origin.sender)
    senderdomain = "" if origin.sender is None else origin.sender.domain
    return (
        (not condition.client or in_networks(origin.client, condition.client))
        and (not condition.user or origin.user in condition.user)
        and (not condition.sender or sender in condition.sender)
        and (not condition.senderdomain or _domain_in(senderdomain, condition.senderdomain))
        and (not condition.recipient or str(recipient) in condition.recipient)
        and (not condition.recipientdomain or _domain_in(recipient.domain, condition.recipientdomain))
    )


def _domain_in(domain: str, patterns: Sequence[str]) -> bool:
    """`example.com` is that domain; `*.example.com` is everything below it."""
    asked = ascii_domain(domain)
    for pattern in patterns:
        wanted = ascii_domain(pattern.removeprefix("*."))
        if asked.endswith("." + wanted) if pattern.startswith("*.") else asked == wanted:
            return True
    return False
