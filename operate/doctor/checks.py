"""checks — the checks of `pillarbox doctor`, their verdicts and their limits

Owns: the table of checks by id, the type of a finding, and every number from which one is a warning or an alarm.
Guarantees: ids are stable: monitoring refers to them. Limits carry their reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from shared.config.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(IntEnum):
    """How bad it is; the worst one decides the exit status."""

    OK = 0
    NOTE = 1  # worth knowing, nothing to do
    WARN = 2  # will hurt if it stays
    ALARM = 3  # mail is not delivered, or may be lost


@dataclass(frozen=True, slots=True)
class Finding:
    """The finding of one check, and its remedy, which is empty where there is nothing to do."""

    check: str
    verdict: Severity
    found: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.check not in CHECKS:
            raise KeyError(self.check)


@dataclass(frozen=True, slots=True)
class Limits:
    """From where on something is worth a warning, or an alarm."""

    # A snapshot this old keeps the dead rows of as much mail; backups of a large queue may take minutes.
    horizon: tuple[timedelta, timedelta] = (timedelta(minutes=5), timedelta(hours=1))
    # Of the room for locks, by an estimate that is on the safe side; beyond it comes "out of shared memory".
    locks: tuple[float, float] = (0.8, 1.6)
    # At 1 COMMIT fails, and so does accepting mail.
    notifications: tuple[float, float] = (0.1, 0.5)
    # Of max_connections in use.
    connections: tuple[float, float] = (0.8, 0.95)
    # WAL a slot holds back, in bytes.
    wal: tuple[int, int] = (1 << 30, 16 << 30)
    # Leases compare a worker's patience with the server's clock.
    clock: tuple[float, float] = (1.0, 5.0)
    # Dead rows of a leaf: five times what maintenance vacuums at, so it does not get through.
    dead: int = 50_000
    # A leaf this large with so few rows to show for it is mostly air.
    bloat: tuple[int, int] = (256 << 20, 64 << 10)  # octets in all, octets for each row
    # Mail due and untouched: maintenance.overdue wakes its worker after a minute by default.
    overdue: tuple[timedelta, timedelta] = (timedelta(minutes=10), timedelta(hours=1))
    # Nothing delivered while mail waits: a retry may be some minutes away, and an hour is an outage.
    flow: tuple[timedelta, timedelta] = (timedelta(minutes=10), timedelta(hours=1))
    # A lease that has run out is taken over by the next full pass, one poll later.
    lost: timedelta = timedelta(minutes=2)
    # Recipients that wait for one host, or for DNS: a large destination that is down for an hour has hundreds.
    shut: tuple[float, float] = (100, 1000)
    # Dead letters in a day.
    deadletters: int = 100
    # Days of history that must be there; the maintainer makes more each round.
    days: int = 3
    # Free space under var: octets.
    disk: tuple[int, int] = (2 << 30, 512 << 20)
    # An endpoint may be restarted or moved; its events wait for days.
    webhook: timedelta = timedelta(hours=1)
    # Tokens last 15 minutes unless the application says otherwise, and people wait for them.
    tokens: tuple[timedelta, timedelta] = (timedelta(minutes=1), timedelta(minutes=5))
    # How many messages and rows a sampling check looks at from each start.
    sample: int = 1000
    # How many rows of a backlog a check reads.
    backlog: int = 10_000
    # The longest any one query may take, in seconds.
    patience: int = 10


#: id → what it looks at, and what makes it warn (W) or alarm (A).
CHECKS: Final[dict[str, str]] = {
    "daemon.live": (
        "Each process of smtpd, httpd and collect that signed on beats or has signed off. W: one is silent, and no "
        "other of its kind has started on its host since."
    ),
    "daemon.versions": "All running daemons are one version of Pillarbox. W: they are not, as during an upgrade.",
    "worker.live": "Each worker of queued.yaml and of the register beats. W: one is silent or has never started.",
    "worker.condition": (
        "Each worker's WHERE is one expression over columns of queue, of immutable functions and operators, without "
        "subqueries, aggregates, set-returning functions or names from foreign schemas. A: it is not, or fails. W: "
        "doctor may not make the temporary table that it needs to ask PostgreSQL."
    ),
    "worker.changed": "A running worker has the WHERE that queued.yaml gives it. Note: it was started with another.",
    "worker.pruning": "The plan of a worker's claim opens only leaves that can hold its mail. W: it opens others.",
    "partition.served": (
        "Every partition id from 1 to partitions.count, those that policy rules and leaves name, and none (NULL) is "
        "selected by a worker's WHERE. A: no worker selects it. W: only in part, or no such worker is alive."
    ),
    "partition.unknown": "A new partition id would have a worker. Note: it would not.",
    "partition.overlap": "Partition ids that several workers share, which is allowed. Note: they are listed.",
    "partition.waiting": "Due mail is selected by a running worker. Note: that cannot be proven. A: it is not.",
    "partition.default": "Partition ids in the default leaf. Note: ids without a leaf of their own. W: unknown ids.",
    "mail.overdue": "How long due mail has waited, by partition id. W: 10 minutes. A: an hour.",
    "mail.lease": "Expired claims are taken over. W: one has been expired for 2 minutes.",
    "mail.transport": (
        "Waiting mail and policy rules name transports of queued.yaml. A: mail names another, and waits until it "
        "expires. W: a rule does."
    ),
    "transport.next_hop": "Every transport of queued.yaml names a next hop. A: one does not, or mail goes to a sink.",
    "transport.reached": (
        "Each host that transports and their routes name accepts a connection, TLS as configured and our login. No "
        "mail is sent. W: one does not, and another of its transport does. A: none does."
    ),
    "mail.flow": (
        "Mail is delivered while mail waits. Note: nothing was delivered for 10 minutes, and mail for one domain "
        "waits. W: mail for several domains does. A: for an hour."
    ),
    "mail.suspended": "Mail waits because a suspend says so. Note: some mail does. W: all mail does.",
    "mail.hosts": (
        "Mail that waits for a host that does not answer, is at its limit, or for DNS. Note: there is some. W: 100 "
        "recipients wait for one of them. A: 1000, as where many domains lead to one dead host."
    ),
    "mail.dead": "Dead letters of the last day. Note: there are some. W: 100.",
    "webhook.endpoints": (
        "Endpoints of webhooks take their events. Note: one is disabled. W: one has failed for an hour, or is paused "
        "because it failed for three days."
    ),
    "account.mail": (
        "Keys and templates of collect.yaml can be used, each template with sample values. A: one cannot, so no "
        "collector starts, and one that runs keeps the old."
    ),
    "account.collector": (
        "A collector is connected to the accounts' database, and the last token that was collected. Note: a collector "
        "only polls, or none is connected. W: none is, though collect.yaml has enabled: true."
    ),
    "account.tokens": (
        "Tokens that could be collected. Note: tokens expired uncollected in the last day. W: one has waited for a "
        "minute. A: for 5 minutes; or the accounts cannot be reached or are not there."
    ),
    "leaf.triggers": "Every table of the tree has the triggers that count bodies and refuse moves. A: one is missing.",
    "leaf.unique": "Every leaf has UNIQUE (id). A: one lacks it.",
    "leaf.indexes": "Every leaf has the indexes that claims read. A: one is missing or invalid.",
    "leaf.storage": "Every leaf leaves room for claims and is vacuumed by count. W: its parameters were changed.",
    "leaf.bloat": "Dead rows and size of each leaf. W: vacuum does not keep up.",
    "leaf.vacuum": "This role may vacuum leaves, as maintenance does. Note: it may not; autovacuum cleans alone.",
    "history.days": "The coming days have partitions. A: today's or tomorrow's is missing. W: a later one is.",
    "refcount.drift": "The counts of a sample of messages agree with their queue rows. A: one does not.",
    "refcount.body": "A sample of queue rows has bodies. A: a body is missing.",
    "server.reached": "PostgreSQL answers. A: it does not, and no check of the database is made.",
    "schema.version": "The schema is this code's. A: it is older, newer, or from before 0.1.0.",
    "schema.partitions": "SQL hashes domains into as many ids as smtpd.yaml says. W: into another number.",
    "schema.reviewers": "PostgreSQL lets those review who are reviewers in smtpd.yaml. W: others do.",
    "server.version": "The server's version. Note: newer than any this code was tested with.",
    "server.restored": (
        "A database that was restored to a target was held before mail went on. W: `pillarbox recover begin` was not "
        "run on its timeline."
    ),
    "server.durability": (
        "Settings that make a commit durable are on. A: fsync or full_page_writes is off. W: synchronous_commit is off."
    ),
    "server.writable": "Sessions can write. A: the server is a standby, or default_transaction_read_only is on.",
    "server.collation": (
        "The C library or ICU sorts texts as when they were indexed. W: its version is another one, after an upgrade "
        "of the system or on another host."
    ),
    "server.connections": "Room for more connections. W: 80 % in use. A: 95 %.",
    "server.locks": (
        "Room for the locks of all workers and webhooks at once, by the leaves that they open, against "
        "max_locks_per_transaction. W: 80 % of it. A: 160 %."
    ),
    "server.clock": "This host's clock against the server's. W: 1 s apart. A: 5 s.",
    "server.horizon": "Sessions that hold back vacuum, and for how long. W: 5 minutes. A: an hour.",
    "server.slots": "Replication slots. W: one is inactive, or holds 1 GiB of WAL. A: 16 GiB, or it is lost.",
    "server.notifications": "The queue of notifications. W: a tenth full. A: half full.",
    "server.volumes": (
        "Room on PostgreSQL's volumes, as `pillarbox volumes` reports it. A: less than spool.minfree, so smtpd refuses "
        "mail; or the reports have ended. Note: nothing is reported, and smtpd sees no volume itself."
    ),
    "tls.certificates": (
        "Each certificate of smtpd.yaml can be read and lasts. W: its end is nearer than tls.expirywarning. A: it has "
        "ended, has not begun, or cannot be read."
    ),
    "login.secrets": (
        "Passwords and tokens that connection.auth names can be read. W: one cannot, or it is open to everybody."
    ),
    "login.refused": (
        "Mail does not wait because a next hop refuses our login or asks for one. A: it does, and doctor itself does "
        "not log in once more."
    ),
    "host.dns": (
        "DNS answers, and knows the names that we give other hosts. W: a name has no address, or a name server "
        "does not answer. A: none does. All are notes where no transport needs DNS."
    ),
    "host.name": (
        "This host has a fully qualified name, or the configuration gives one. W: neither, so mail says the literal of "
        "its address."
    ),
    "host.reverse": (
        "Where mail goes straight to mail exchangers, the reverse record (PTR) of each address of our name has that "
        "name. W: it does not. Note: DNS does not answer."
    ),
    "domain.spf": (
        "Each domain of signing.rules has one SPF record. W: it has none, or several, which receivers ignore. Note: "
        "DNS does not answer."
    ),
    "domain.dkim": "DNS has the public keys of signing.rules. W: it lacks one, or has another.",
    "domain.dmarc": (
        "Each domain of signing.rules, or a domain above it, has one DMARC record. W: it has none, or several. Note: "
        "DNS does not answer."
    ),
    "domain.mta_sts": (
        "Each domain of signing.rules that has a record _mta-sts publishes a policy by HTTPS, which names the domain's "
        "mail exchangers and lasts for a day. W: it does not, so senders that honour it cannot deliver to the domain, "
        "or may be led to another host. Note: the policy is not enforced yet, or DNS does not answer."
    ),
    "retry.windows": (
        "Delivery windows open before mail expires. W: they stay closed for longer than retry.age or retry.nullage, so "
        "mail may be given up untried."
    ),
    "python.build": "The build of doctor's Python, which the daemons use too. Note: without PGO, which is slower.",
    "disk.var": "Free space under environment.var, for the embedded server. W: 2 GiB or less. A: 512 MiB or less.",
}


def worst(findings: Iterable[Finding]) -> Severity:
    """The gravest verdict; OK of nothing."""
    return max((finding.verdict for finding in findings), default=Severity.OK)


def graded(value: float, limits: tuple[float, float]) -> Severity:
    """WARN from the first limit on, ALARM from the second."""
    return Severity.ALARM if value >= limits[1] else Severity.WARN if value >= limits[0] else Severity.OK


def graded_time(value: timedelta, limits: tuple[timedelta, timedelta]) -> Severity:
    """The same for spans of time."""
    return graded(value.total_seconds(), (limits[0].total_seconds(), limits[1].total_seconds()))


def span(value: timedelta) -> str:
    """A span as people read it, in whole seconds and without what is too small to matter."""
    seconds = max(round(value.total_seconds()), 0)
    if seconds >= 86_400:  # noqa: PLR2004 - a day
        seconds -= seconds % 3600
    elif seconds >= 3600:  # noqa: PLR2004 - an hour
        seconds -= seconds % 60
    return format_duration(timedelta(seconds=seconds))


def listed(names: Iterable[object], most: int = 6) -> str:
    """Names in a row; the rest as a number."""
    each = [str(name) for name in names]
    rest = len(each) - most
    return ", ".join(each[:most]) + (f" and {rest} more" if rest > 0 else "")
