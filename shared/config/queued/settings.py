"""settings — the whole of queued.yaml

Owns: the models of workers, claims, shutdown and maintenance.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter; ids are unique.
Whether the workers' conditions cover every partition is not checked here: that needs a database.
See: https://www.postfix.org/postconf.5.html; RFC 5321 section 4.5.3.2 (time limits); Halon's queue manual
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from shared.config.environment import QueuedEnvironment, Where
from shared.config.fields import (
    Duration,
    Fraction,
    Interval,
    MisplacedError,
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
from shared.config.metrics import Metrics
from shared.config.queued.bounces import Bounces
from shared.config.queued.pacing import Pacing
from shared.config.queued.routing import Routing
from shared.config.queued.rules import ReplyRule
from shared.config.queued.signing import Signing
from shared.config.queued.transport import Transport, TransportGroup, unknown_groups
from shared.config.queued.webhooks import Webhooks
from shared.config.suppression import Suppression
from shared.config.tracing import Tracing
from shared.masking import show

WorkerId = Annotated[str, matching(r"[a-z0-9-]{1,64}", "1 to 64 of a-z, 0-9 and hyphen")]


class Worker(Section):
    """One delivery worker and its rows."""

    id: WorkerId = required("The worker's name, for python -m queued --worker ID.", unit="id, unique")
    where: Where = required(
        "The SQL condition on columns of queue that selects the worker's share of the queue. Together the conditions "
        "must cover every partition; where they overlap, workers share the work.",
        unit="SQL condition",
    )


def _workers() -> list[Worker]:
    return [
        Worker(id="queued-123", where="metadata->>'_partid' IN ('1','2','3')"),
        Worker(id="queued-456", where="metadata->>'_partid' IN ('4','5','6') OR metadata->>'_partid' IS NULL"),
    ]


class Claim(Section):
    """How a worker claims rows."""

    batch: Annotated[int, whole(1, 10_000)] = setting(200, "The most recipients taken by one claim.", unit="recipients")
    lease: Interval = setting(
        "15m",
        "How long a claim holds. If a worker dies, its mail is retried automatically after this time, or when the same "
        "worker is started again on its host.",
        unit="duration",
    )
    poll: Interval = setting("5s", "How often to look for due recipients without a notification.", unit="duration")
    inflight: Annotated[int, whole(1, 1_000_000)] = setting(
        1000,
        "The most recipients claimed at the same time; up to a quarter more while attempts stand still after their "
        "content.",
        unit="recipients",
    )
    maxbytes: Size = setting(
        "64MiB",
        "The most content of claimed messages held in memory; up to a quarter more for those attempts.",
        unit="size in bytes",
    )
    ordinary: Fraction = setting(
        0.2,
        "The part of each claim reserved for ordinary mail when urgent mail is due too, because every client that may "
        "submit can mark its mail urgent.",
        unit="fraction from 0 to 1",
    )
    retried: Fraction = setting(
        0.5,
        "The part of each claim reserved for mail that was tried or parked before, when fresh mail is due too "
        "(Postfix fills its active queue from incoming and deferred in turn).",
        unit="fraction from 0 to 1",
    )
    share: Fraction = setting(
        0.25,
        "The part of `inflight`, but not less than 100 recipients, and of `maxbytes` that one destination may hold; "
        "further mail for it goes back to the queue for a while.",
        unit="fraction from 0 to 1",
    )
    wait: Interval = setting(
        "5s",
        "How long a claimed recipient may wait for a connection to its destination before it goes back to the queue.",
        unit="duration",
    )


class Wakeup(Section):
    """How a worker is notified at once of new mail."""

    mode: Literal["listen", "poll"] = setting(
        "listen",
        "listen: notifications wake the worker, and it also polls; poll: it only polls, every claim.poll.",
        unit="word",
    )
    probe: Interval = setting(
        "30s", "How often to test that notifications arrive, by an echo to ourselves.", unit="duration"
    )
    uri: Text | None = setting(
        None,
        "A direct libpq URI for listening, if environment.database.uri leads through a transaction pooler, which "
        "drops notifications.",
        unit="text",
        absent="environment.database.uri",
        repr=False,
    )


class Shutdown(Section):
    """How a worker stops."""

    timeout: Duration = setting(
        "30s", "How long deliveries may take to finish before they are aborted.", unit="duration"
    )


class Keep(Section):
    """How long finished mail is kept."""

    history: Interval = setting("30d", "Attempts.", unit="duration")
    find: Interval = setting(
        "90d",
        "The archive, in which finished mail is found by its Message-ID; at least as long as keep.history.",
        unit="duration",
    )
    deadletters: Interval = setting("7d", "The bodies of dead letters, so that they can be requeued.", unit="duration")
    idempotency: Interval = setting("1d", "The keys that applications gave to enqueue.", unit="duration")


class Maintenance(Section):
    """The maintenance that workers do in the database."""

    interval: Interval = setting("1m", "How often maintenance runs.", unit="duration")
    grace: Duration = setting(
        "10m", "How long a body without recipients is kept before it is deleted.", unit="duration"
    )
    ahead: Annotated[int, whole(1, 366)] = setting(
        7, "How many days of history partitions are created in advance.", unit="days"
    )
    overdue: Interval = setting(
        "1m", "How long mail may be due and unclaimed before its workers are notified again.", unit="duration"
    )
    poison: Annotated[int, whole(3, 100)] = setting(
        3, "How many consecutive claims may end without a result before the recipient is put on hold.", unit="claims"
    )
    keep: Keep = section(Keep, "How long finished data is kept.")


class QueuedConfig(Section):
    """The configuration of queued: claims recipients from the queue and delivers to them over SMTP."""

    environment: QueuedEnvironment = section(QueuedEnvironment, "Where queued finds its database, files and log.")
    workers: Annotated[list[Worker], Field(min_length=1), AfterValidator(unique_ids)] = section(
        _workers,
        "The workers that `pillarbox up` starts. List of id and where, default two: queued-123 and queued-456.",
    )
    claim: Claim = section(Claim, "How a worker claims recipients.")
    wakeup: Wakeup = section(Wakeup, "How a worker learns of new mail at once.")
    transportgroups: Annotated[list[TransportGroup], AfterValidator(unique_ids)] = section(
        list,
        "Settings that several transports share: a transport with `group` takes every key of its group that it does "
        "not set itself. List of groups, default [].",
    )
    transports: Annotated[list[Transport], Field(min_length=1), AfterValidator(unique_ids)] = section(
        lambda: [Transport()],
        "How to reach destinations. List of transports, default one with every key at its default.",
    )
    pacing: Pacing = section(Pacing, "How fast mail may be sent, and which mail must wait.")
    rules: Annotated[list[ReplyRule], AfterValidator(unique_ids)] = setting(
        [],
        "Rules that react to replies beyond their code, each with an id, conditions and actions.",
        unit="list of rules",
    )
    signing: Signing = section(Signing, "DKIM signatures; a message gets one from every rule that matches it.")
    routing: Routing = section(Routing, "How hosts of a destination are found.")
    bounces: Bounces = section(Bounces, "Delivery status notifications to senders (RFC 3464).")
    suppression: Suppression = section(
        Suppression, "Which addresses get no mail, and how workers learn of them from bounces and feedback reports."
    )
    webhooks: Webhooks = section(Webhooks, "HTTP endpoints that receive events about mail.")
    shutdown: Shutdown = section(Shutdown, "How a worker stops.")
    maintenance: Maintenance = section(Maintenance, "Maintenance of the database by workers.")
    metrics: Metrics = section(Metrics, "Metrics and health pages over HTTP.")
    tracing: Tracing = section(Tracing, "OpenTelemetry spans that follow a message through both daemons.")

    @model_validator(mode="after")
    def _bounces_have_a_transport(self) -> Self:
        known, named = [each.id for each in self.transports], self.bounces.transport
        if "transport" in self.bounces.model_fields_set and named not in known:
            text = f"{show(named)} is not a transport; allowed: {', '.join(known)}"
            raise MisplacedError([(("bounces", "transport"), text)])
        return self

    @model_validator(mode="after")
    def _transports_exist(self) -> Self:
        known = [each.id for each in self.transports]
        named: list[tuple[tuple[str | int, ...], list[str]]] = [
            *((("rules", i, "if", "transport"), rule.condition.transport) for i, rule in enumerate(self.rules)),
            *(
                (("pacing", key, i, "match", "transport"), each.match.transport)
                for key in ("policies", "suspends")
                for i, each in enumerate(getattr(self.pacing, key))
            ),
        ]
        problems = [
            ((*path, index), f"{show(name)} is not a transport; allowed: {', '.join(known)}")
            for path, names in named
            for index, name in enumerate(names)
            if name not in known
        ]
        if problems:
            raise MisplacedError(problems)
        return self

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        unknown = unknown_groups(self.transports, self.transportgroups)
        if unknown:
            raise MisplacedError(unknown)
        return self
