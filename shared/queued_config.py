"""queued_config — everything queued.yaml can say

Owns: the models of workers, claims, transports, shutdown and maintenance.
Called by: shared.config, which fills them; queued reads them, `pillarbox up` reads the workers.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter; ids are unique.
That the workers' conditions cover every partition is not decided here: it takes a database to know.
See: https://www.postfix.org/postconf.5.html; RFC 5321 section 4.5.3.2 (time limits); Halon's queue manual
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shared.config_fields import (
    Duration,
    Fraction,
    HostName,
    Id,
    Interval,
    Section,
    Size,
    Text,
    matching,
    required,
    section,
    setting,
    unique_ids,
    whole,
)
from shared.environment_config import QueuedEnvironment
from shared.metrics_config import Metrics
from shared.routing_config import Allow, Connection, Routes, Routing
from shared.signing_config import Signing

WorkerId = Annotated[str, matching(r"[a-z0-9-]{1,64}", "1 to 64 of a-z, 0-9 and hyphen")]


class Worker(Section):
    """One delivery worker and the rows it owns."""

    id: WorkerId = required("The name to start it by: python -m queued --worker ID.", unit="id, unique")
    where: Text = required(
        "The SQL condition on columns of queue that selects its rows; together the workers' conditions must "
        "cover every partition; where they overlap, workers share the work.",
        unit="SQL condition",
    )


def _workers() -> list[Worker]:
    return [
        Worker(id="queued-123", where="metadata->>'_partid' IN ('1','2','3')"),
        Worker(id="queued-456", where="metadata->>'_partid' IN ('4','5','6') OR metadata->>'_partid' IS NULL"),
    ]


class Claim(Section):
    """How a worker takes rows."""

    batch: Annotated[int, whole(1, 10_000)] = setting(200, "The most recipients taken by one claim.", unit="recipients")
    lease: Interval = setting(
        "15m",
        "How long a claim holds; a recipient whose worker died is due again after it.",
        unit="duration",
    )
    poll: Interval = setting("5s", "How often to look for due recipients when no notification comes.", unit="duration")
    inflight: Annotated[int, whole(1, 1_000_000)] = setting(
        1000, "The most recipients claimed at once.", unit="recipients"
    )
    maxbytes: Size = setting("64MiB", "The most content of claimed messages held in memory.", unit="size in bytes")


class Wakeup(Section):
    """How a worker learns at once that there is mail."""

    mode: Literal["listen", "poll"] = setting(
        "listen",
        "listen: notifications wake the worker, and it polls besides; poll: it only polls, every claim.poll.",
        unit="word",
    )
    probe: Interval = setting(
        "30s", "How often to prove that notifications get through, by an echo to ourselves.", unit="duration"
    )
    uri: Text | None = setting(
        None,
        "A direct libpq URI for listening, where environment.database.uri leads through a transaction pooler, which "
        "lets no notification through.",
        unit="text",
        absent="environment.database.uri",
        repr=False,
    )


class Pooling(Section):
    """How long a connection is kept for further messages."""

    transactions: Annotated[int, whole(1, 1_000_000)] = setting(
        100,
        "The most messages sent over one connection (Postfix smtp_connection_reuse_count_limit).",
        unit="transactions",
    )
    idle: Duration = setting(
        "2s",
        "How long an unused connection is kept open (Postfix smtp_connection_cache_time_limit).",
        unit="duration",
    )
    age: Interval = setting(
        "5m",
        "How old a connection may grow before it takes no more messages (Postfix smtp_connection_reuse_time_limit).",
        unit="duration",
    )


class Timeout(Section):
    """How long to wait for the other server, step by step (RFC 5321 section 4.5.3.2)."""

    connect: Interval = setting("30s", "For the TCP connection (Postfix smtp_connect_timeout).", unit="duration")
    greeting: Interval = setting("5m", "For the greeting (Postfix smtp_helo_timeout).", unit="duration")
    helo: Interval = setting("5m", "For the reply to EHLO or HELO (Postfix smtp_helo_timeout).", unit="duration")
    mail: Interval = setting("5m", "For the reply to MAIL FROM (Postfix smtp_mail_timeout).", unit="duration")
    rcpt: Interval = setting("5m", "For the reply to RCPT TO (Postfix smtp_rcpt_timeout).", unit="duration")
    data: Interval = setting("2m", "For the reply to DATA (Postfix smtp_data_init_timeout).", unit="duration")
    body: Interval = setting("3m", "For the content to be taken (Postfix smtp_data_xfer_timeout).", unit="duration")
    dot: Interval = setting("10m", "For the reply to the final dot (Postfix smtp_data_done_timeout).", unit="duration")
    rset: Interval = setting("20s", "For the reply to RSET (Postfix smtp_rset_timeout).", unit="duration")
    quit: Interval = setting("5m", "For the reply to QUIT (Postfix smtp_quit_timeout).", unit="duration")


class Retry(Section):
    """When a deferred recipient is tried again, and when it is given up."""

    intervals: Annotated[list[Interval], Field(min_length=1)] = setting(
        ["1m", "15m", "1h", "2h", "3h"],
        "The wait before each further try; the last repeats (Halon retry.intervals).",
        unit="list of durations",
    )
    jitter: Fraction = setting(
        0.1, "By how much of itself a wait may vary, so that retries spread.", unit="fraction from 0 to 1"
    )
    count: Annotated[int, whole(0, 10_000)] = setting(
        30, "The most further tries before giving up (Halon retry.count).", unit="tries"
    )
    age: Interval = setting(
        "5d", "How old a message may grow before giving up (Postfix maximal_queue_lifetime).", unit="duration"
    )


class Transport(Section):
    """A way to reach a set of destinations."""

    id: Id = setting("default", "The name policy rules choose it by.", unit="id, unique")
    connection: Connection = section(Connection, "Where to connect to.")
    routes: Routes = setting(
        {},
        "Where mail for a domain goes instead; .example.com is every domain below example.com (Postfix "
        "transport_maps).",
        unit="next hop by domain",
    )
    allow: Allow = section(Allow, "What DNS may lead to.")
    hostname: HostName | None = setting(
        None,
        "The name we give ourselves in EHLO (Postfix smtp_helo_name).",
        unit="host name",
        absent="this host's fully qualified name",
    )
    concurrency: Annotated[int, whole(1, 10_000)] = setting(
        20,
        "The most connections to one destination at once (Postfix default_destination_concurrency_limit).",
        unit="connections",
    )
    recipients: Annotated[int, whole(1, 10_000)] = setting(
        50,
        "The most recipients in one transaction (Postfix default_destination_recipient_limit).",
        unit="recipients",
    )
    pooling: Pooling = section(Pooling, "How long a connection is kept for further messages.")
    timeout: Timeout = section(Timeout, "How long to wait for the other server, step by step.")
    retry: Retry = section(Retry, "When a deferred recipient is tried again, and when it is given up.")


class Shutdown(Section):
    """How a worker ends."""

    timeout: Duration = setting(
        "30s", "How long deliveries under way may take to finish before they are cut off.", unit="duration"
    )


class Keep(Section):
    """How long what is finished is kept."""

    history: Interval = setting("30d", "The days of attempts and archive.", unit="duration")
    deadletters: Interval = setting(
        "7d", "The bodies of dead letters, so that they can be queued again.", unit="duration"
    )
    idempotency: Interval = setting("7d", "The keys that applications gave to enqueue.", unit="duration")


class Maintenance(Section):
    """What workers keep tidy in the database."""

    interval: Interval = setting("1m", "How often to tidy.", unit="duration")
    grace: Duration = setting(
        "10m", "How long a body without recipients is kept before it is swept away.", unit="duration"
    )
    ahead: Annotated[int, whole(1, 366)] = setting(
        7, "How many days of history partitions are made in advance.", unit="days"
    )
    overdue: Interval = setting(
        "1m", "How long mail may be due and untouched before its workers are woken once more.", unit="duration"
    )
    poison: Annotated[int, whole(3, 100)] = setting(
        3, "How many claims in a row may end without a result before the recipient is held.", unit="claims"
    )
    keep: Keep = section(Keep, "How long what is finished is kept.")


class QueuedConfig(Section):
    """The configuration of queued: claims recipients from the queue and delivers to them over SMTP."""

    environment: QueuedEnvironment = section(QueuedEnvironment, "Where queued lives.")
    workers: Annotated[list[Worker], Field(min_length=1), AfterValidator(unique_ids)] = section(
        _workers,
        "The workers that pillarbox up starts. List of id and where, default two: queued-123 and queued-456.",
    )
    claim: Claim = section(Claim, "How a worker takes rows.")
    wakeup: Wakeup = section(Wakeup, "How a worker learns at once that there is mail.")
    transports: Annotated[list[Transport], Field(min_length=1), AfterValidator(unique_ids)] = section(
        lambda: [Transport()],
        "The ways to reach destinations. List of transports, default one with every key at its default.",
    )
    signing: Signing = section(
        Signing, "DKIM signatures on mail that leaves; a message gets those of every rule that fits it."
    )
    routing: Routing = section(Routing, "How the way to a destination is found.")
    shutdown: Shutdown = section(Shutdown, "How a worker ends.")
    maintenance: Maintenance = section(Maintenance, "What workers keep tidy in the database.")
    metrics: Metrics = section(Metrics, "Where Prometheus and whoever asks for the worker's health get their answer.")
