"""recipient — the permission to relay, and the queue row of a recipient

Owns: the relay permission, and turning the changes that rules made into partition, status, transport, priority and
    metadata. Pure.
Guarantees: the same key gives the same partition in every version (shared.mail.partition). Metadata keys that begin
    with an underscore are ours.
See: sql/README.md, columns of queue; Halon's metadata `_quarantineid` and `_partid`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shared.mail.message import Recipient
from shared.mail.partition import partition_id
from shared.mail.states import Status
from smtpd.policy.facts import address_bits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network

    from smtpd.envelope.client import Client, User
    from smtpd.policy.decision import Changes
    from smtpd.policy.facts import Facts


def may_relay(client: Client, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether this client may relay: it is authenticated, or its address is in a listed network."""
    return client.user is not None or in_networks(client.address, networks)


def in_networks(client: str, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Whether an IP address is in one of the networks; an IPv4-mapped IPv6 address counts as the IPv4 one."""
    bits = address_bits(client)
    return bits is not None and any(
        network.max_prefixlen == bits.width and int(network.network_address) == bits.value & int(network.netmask)
        for network in networks
    )


def row(facts: Facts, changes: Changes, user: User | None, partitionkey: str, partitions: int) -> Recipient:
    """The queue row of `facts.recipient`. What rules left open, the user's own settings fill, then the defaults."""
    if facts.recipient is None:
        raise ValueError("a row is of a recipient")
    hold, reason = changes.hold, changes.holdreason
    if hold is None and user is not None and user.hold is not None:
        hold, reason = user.hold, "all mail of this user is held"
    metadata = dict(changes.metadata)
    if hold is not None:
        metadata |= {"_quarantineid": hold, "_holdreason": reason or ""}
    if changes.rules:
        metadata["_policyrule"] = ",".join(changes.rules)
    partition = changes.partition
    if partition is None and changes.partitionkey is None and user is not None:
        partition = user.partition
    if partition is None:
        key = partition_key(changes.partitionkey or partitionkey, facts, changes.metadata)
        partition = partition_id(key, partitions)
    own = user.transport if user is not None else None
    more: dict[str, Any] = {} if changes.priority is None else {"priority": changes.priority}
    return Recipient(
        facts.recipient,
        partid=partition,
        status=Status.DELIVER if hold is None else Status.HOLD,
        transportid=changes.transport or own or "default",
        metadata=metadata,
        **more,
    )


def partition_key(key: str, facts: Facts, metadata: Mapping[str, str]) -> str:
    """The text to hash: the value that `key` names, or the recipient's domain where there is none."""
    kind, _, name = key.partition(":")
    value: str | None = None
    match kind:
        case "recipient":
            value = facts.recipient_text
        case "sender":
            value = facts.sender_text
        case "senderdomain":
            value = facts.sender_domain
        case "user":
            value = facts.user
        case "metadata":
            value = metadata.get(name)
        case "header":
            value = facts.headers.first(name) if facts.headers is not None else None
        case _:
            pass
    return value or facts.recipient_domain
