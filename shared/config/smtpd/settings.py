"""settings — the whole of smtpd.yaml

Owns: the models of listeners, limits, relaying, submitting users and the spool.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/postconf.5.html; Halon's smtpd.yaml for `servers[].phases`
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from shared.config.environment import SmtpdEnvironment
from shared.config.fields import (
    HIGHEST_PORT,
    FilePath,
    Host,
    HostName,
    Id,
    Interval,
    IpNetwork,
    MisplacedError,
    Section,
    Size,
    section,
    setting,
    unique_ids,
    whole,
)
from shared.config.metrics import SmtpdMetrics
from shared.config.retention import Retention
from shared.config.smtpd.authentication import Authentication
from shared.config.smtpd.content import DataPhase
from shared.config.smtpd.overload import Account, Load, Processes, group, processes, user
from shared.config.smtpd.policy import Policy
from shared.config.smtpd.quarantine import Quarantine
from shared.config.smtpd.rates import Rates
from shared.config.smtpd.session import (
    ConnectPhase,
    Limits,
    MailfromPhase,
    Memory,
    Proxy,
    RcpttoPhase,
    ServerTimeout,
    Xclient,
)
from shared.config.smtpd.tls import Tls
from shared.config.suppression import SuppressionAtRcpt
from shared.config.tracing import Tracing
from shared.config.units import format_size


class Listener(Section):
    """One socket that accepts SMTP."""

    address: Host = setting("127.0.0.1", "The address to listen on.", unit="IP address or host name")
    port: Annotated[int, whole(0, HIGHEST_PORT)] = setting(
        2525, "The TCP port to listen on; 0 takes any free one.", unit="port number"
    )
    backlog: Annotated[int, whole(1, 65535)] = setting(
        1024, "How many connections may wait to be accepted, as in listen(2).", unit="connections"
    )
    tls: Literal["none", "starttls", "implicit"] = setting(
        "starttls",
        "How TLS starts here, if there is a certificate: none; starttls, when the client asks for it (RFC 3207); or "
        "implicit, before anything else (RFC 8314 section 3, Postfix smtpd_tls_wrappermode).",
        unit="word",
    )
    proxy: Proxy = section(
        Proxy, "Which proxies may pass on the client's address by the PROXY protocol (versions 1 and 2)."
    )
    xclient: Xclient = section(Xclient, "Which clients may use XCLIENT.")


class Phases(Section):
    """Limits by phase of the SMTP conversation."""

    connect: ConnectPhase = section(
        ConnectPhase, "What happens before the first command, and to clients that send out of turn."
    )
    mailfrom: MailfromPhase = section(MailfromPhase, "What clients may ask for in MAIL FROM.")
    rcptto: RcpttoPhase = section(RcpttoPhase, "Limits on RCPT TO.")
    data: DataPhase = section(DataPhase, "Limits on the content of a message.")


#: Keywords of EHLO (RFC 5321 section 4.1.1.1) that every client is offered, whatever else the configuration says.
type Keyword = Literal[
    "8BITMIME", "CHUNKING", "DSN", "ENHANCEDSTATUSCODES", "LIMITS", "MT-PRIORITY", "PIPELINING", "SIZE", "SMTPUTF8"
]


class Server(Section):
    """Listeners that share one name, one certificate and one set of limits."""

    id: Id = setting("default", "The name of the server, for logs and metrics.", unit="id, unique")
    hostname: HostName | None = setting(
        None,
        "Our host name in the greeting, the EHLO reply and the Received field (Postfix myhostname).",
        unit="host name",
        absent="this host's fully qualified name, or the literal of its address",
    )
    listeners: Annotated[list[Listener], Field(min_length=1)] = section(
        lambda: [Listener()],
        "The sockets to accept SMTP on. List of address, port and backlog, default one with each at its default.",
    )
    tls: Tls | None = setting(
        None,
        "The certificates and private keys for TLS.",
        unit="section",
        absent="no TLS",
    )
    limits: Limits = section(Limits, "Limits on what a client sends, and on its errors.")
    timeout: ServerTimeout = section(ServerTimeout, "How long to wait for a client.")
    discardkeywords: list[Keyword] = setting(
        [],
        "Keywords that the reply to EHLO leaves out (Postfix smtpd_discard_ehlo_keywords): for clients that cannot do "
        "what they ask for. Their parameters, and BDAT without CHUNKING, are refused; limits stay.",
        unit="list of 8BITMIME, CHUNKING, DSN, ENHANCEDSTATUSCODES, LIMITS, MT-PRIORITY, PIPELINING, SIZE, SMTPUTF8",
    )
    phases: Phases = section(Phases, "Limits by phase of the SMTP conversation.")

    @model_validator(mode="after")
    def _has_certificate(self) -> Self:
        if self.tls is None:
            without = [
                ((), f"listeners[{index}].tls is implicit but the server has no tls; allowed: both, or starttls")
                for index, listener in enumerate(self.listeners)
                if listener.tls == "implicit"
            ]
            if without:
                raise MisplacedError(without)
        return self


class Relay(Section):
    """Clients that may send without authenticating."""

    networks: list[IpNetwork] = setting(
        ["127.0.0.0/8", "::1/128"],
        "Clients in these networks may send without authenticating; all others must (Postfix mynetworks).",
        unit="list of IP networks",
    )


class SpoolGroup(Section):
    """How many messages share one commit."""

    maxmessages: Annotated[int, whole(1, 100_000)] = setting(
        500, "The most messages that share one commit.", unit="messages"
    )
    maxbytes: Size = setting("16MiB", "The most content that shares one commit.", unit="size in bytes")


class Spool(Section):
    """How accepted messages are committed to the queue."""

    group: SpoolGroup = section(SpoolGroup, "How many messages share one commit.")
    timeout: Interval = setting("30s", "How long a client may wait for its commit before it gets 451.", unit="duration")
    maxlatency: Interval = setting(
        "10s",
        "How long commits may take before clients get 451 to DATA, instead of after they have sent the message.",
        unit="duration",
    )
    synchronous_commit: Literal["on", "remote_apply", "remote_write", "local", "off"] = setting(
        "on",
        "What a commit waits for (PostgreSQL synchronous_commit): on, remote_apply, remote_write, local, or off, "
        "which loses the last accepted messages in a crash.",
        unit="word",
    )
    keepsubject: bool = setting(
        True,
        "Whether the subject of each message is kept with it and in the archive, so that mail is found by its subject. "
        "`pillarbox migrate` tells enqueue.",
        unit="true or false",
    )
    remembered: Annotated[int, whole(0, 10_000_000)] = setting(
        50_000,
        "How many accepted messages of the last hour each process remembers and checks after PostgreSQL was down "
        "(spool.lost_after_failover); 0 turns it off.",
        unit="messages",
    )
    minfree: Size = setting(
        "1GiB",
        "The least free space on each of PostgreSQL's volumes; below it clients get 452 while delivery continues "
        "(Postfix queue_minfree). Use at least max_wal_size, by which the write-ahead log may grow.",
        unit="size in bytes",
    )
    volumes: list[FilePath] = setting(
        [],
        "PostgreSQL's folders on this host (data directory, pg_wal, tablespaces) for spool.minfree; [] means the "
        "embedded server's, or those that `pillarbox volumes` reports from another host.",
        unit="list of paths",
    )
    maxpending: Size = setting(
        "256MiB",
        "The most content that may wait for its commit; above that clients get 452.",
        unit="size in bytes",
    )


class SmtpdConfig(Section):
    """The configuration of smtpd: accepts mail over SMTP and commits it to the queue."""

    environment: SmtpdEnvironment = section(SmtpdEnvironment, "Where smtpd finds its database, files and log.")
    processes: Processes = processes()
    user: Account | None = user()
    group: Account | None = group()
    load: Load = section(Load, "When a process refuses new clients so that its present clients need not wait.")
    servers: Annotated[list[Server], Field(min_length=1), AfterValidator(unique_ids)] = section(
        lambda: [Server()],
        "The SMTP servers to run. List of servers, default one with every key at its default.",
    )
    rates: Rates = section(Rates, "Limits per client, counted over all processes of this host.")
    relay: Relay = section(Relay, "Clients that may send without authenticating.")
    authentication: Authentication = section(Authentication, "Users that may send after authenticating.")
    policy: Policy = section(Policy, "Rules that decide at acceptance about each client, message and recipient.")
    quarantines: Annotated[list[Quarantine], AfterValidator(unique_ids)] = section(
        list,
        "Who may decide about held mail and who gets a digest of it. List of quarantines, default none but poison and "
        "body.",
    )
    retention: Retention = section(Retention, "How long `pillarbox retention` keeps held mail and audit rows.")
    spool: Spool = section(Spool, "How accepted messages are committed to the queue.")
    suppression: SuppressionAtRcpt = section(
        SuppressionAtRcpt, "What happens to mail to suppressed addresses, and where reports come in."
    )
    memory: Memory = section(Memory, "Limits on the memory for content in transfer.")
    metrics: SmtpdMetrics = section(SmtpdMetrics, "Metrics and health pages over HTTP.")
    tracing: Tracing = section(Tracing, "OpenTelemetry spans that follow a message from RCPT to its last reply.")

    @model_validator(mode="after")
    def _policy_names_servers(self) -> Self:
        problems = [
            (("policy", *path), text) for path, text in self.policy.unknown_servers([s.id for s in self.servers])
        ]
        if problems:
            raise MisplacedError(problems)
        return self

    @model_validator(mode="after")
    def _bodies_fit(self) -> Self:
        """The largest acceptable message must fit, else it would get 452 for ever."""
        room = format_size(self.memory.bodies)
        problems: list[tuple[tuple[str | int, ...], str]] = [
            (
                ("servers", index, "phases", "data", "maxsize"),
                f"{format_size(server.phases.data.maxsize)} is more than memory.bodies; allowed: at most {room}",
            )
            for index, server in enumerate(self.servers)
            if server.phases.data.maxsize > self.memory.bodies
        ]
        if problems:
            raise MisplacedError(problems)
        return self
