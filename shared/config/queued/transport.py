"""transport — a way to reach a set of destinations, in queued.yaml

Owns: the models of a transport: its connections, their limits and time limits, and its retries.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/postconf.5.html; RFC 5321 section 4.5.3.2 (time limits); Halon's queue manual
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from shared.config.fields import (
    Duration,
    Fraction,
    HostName,
    Id,
    Interval,
    MisplacedError,
    Section,
    required,
    section,
    setting,
    whole,
)
from shared.config.queued.feedback import Feedback
from shared.config.queued.pacing import Windows
from shared.config.queued.routing import SMTP_PORT, Allow, Connection, Routes
from shared.config.queued.source import Sources
from shared.config.queued.transport_tls import TransportTls
from shared.masking import show

#: Keywords of EHLO (RFC 5321 section 4.1.1.1) without which mail can go all the same.
type Keyword = Literal["DSN", "LIMITS", "MT-PRIORITY", "PIPELINING", "SIZE"]


class Pooling(Section):
    """How long a connection is kept for further messages."""

    transactions: Annotated[int, whole(1, 1_000_000)] = setting(
        100,
        "The most messages sent over one connection (Postfix smtp_connection_reuse_count_limit); fewer if the host "
        "announces LIMITS MAILMAX (RFC 9422).",
        unit="transactions",
    )
    idle: Duration = setting(
        "2s",
        "How long an unused connection is kept open (Postfix smtp_connection_cache_time_limit).",
        unit="duration",
    )
    age: Interval = setting(
        "5m",
        "How old a connection may be to be used for another message (Postfix smtp_connection_reuse_time_limit).",
        unit="duration",
    )


class Timeout(Section):
    """How long to wait for the other server, step by step (RFC 5321 section 4.5.3.2)."""

    connect: Interval = setting("30s", "For the TCP connection (Postfix smtp_connect_timeout).", unit="duration")
    greeting: Interval = setting("5m", "For the greeting (Postfix smtp_helo_timeout).", unit="duration")
    helo: Interval = setting("5m", "For the reply to EHLO or HELO (Postfix smtp_helo_timeout).", unit="duration")
    starttls: Interval = setting(
        "5m",
        "For the reply to STARTTLS, and for the TLS handshake (Postfix smtp_starttls_timeout).",
        unit="duration",
    )
    auth: Interval = setting("5m", "For each reply while we log in (Postfix smtp_helo_timeout).", unit="duration")
    mail: Interval = setting("5m", "For the reply to MAIL FROM (Postfix smtp_mail_timeout).", unit="duration")
    rcpt: Interval = setting("5m", "For the reply to RCPT TO (Postfix smtp_rcpt_timeout).", unit="duration")
    data: Interval = setting("2m", "For the reply to DATA (Postfix smtp_data_init_timeout).", unit="duration")
    body: Interval = setting("3m", "For the transfer of the content (Postfix smtp_data_xfer_timeout).", unit="duration")
    dot: Interval = setting("10m", "For the reply to the final dot (Postfix smtp_data_done_timeout).", unit="duration")
    rset: Interval = setting("20s", "For the reply to RSET (Postfix smtp_rset_timeout).", unit="duration")
    quit: Interval = setting("5m", "For the reply to QUIT (Postfix smtp_quit_timeout).", unit="duration")
    attempt: Interval | None = setting(
        None,
        "For an attempt as a whole, from DNS to the last reply, with any number of recipients, so that a slow host "
        "cannot use up every limit with each reply.",
        unit="duration",
        absent="the sum of the others, 50m50s with Postfix's limits",
    )


class Retry(Section):
    """When a deferred recipient is tried again, and when it is given up."""

    intervals: Annotated[list[Interval], Field(min_length=1)] = setting(
        ["1m", "15m", "1h", "2h", "3h"],
        "The wait before each further try; the last repeats (Halon retry.intervals).",
        unit="list of durations",
    )
    jitter: Fraction = setting(
        0.1,
        "The fraction by which each wait is lengthened at random, so that retries are spread.",
        unit="fraction from 0 to 1",
    )
    count: Annotated[int, whole(0, 10_000)] = setting(
        30, "The most further tries before giving up (Halon retry.count).", unit="tries"
    )
    age: Interval = setting(
        "5d",
        "The age at which a message is given up, after a last try at that age (Postfix maximal_queue_lifetime).",
        unit="duration",
    )
    nullage: Interval = setting(
        "5d",
        "The same for mail from the null sender (Postfix bounce_queue_lifetime); never longer than `age`.",
        unit="duration",
    )
    notice: Interval | None = setting(
        None,
        "The age from which the sender is notified, once, that the message is late (Postfix delay_warning_time).",
        unit="duration",
        absent="never",
    )


class TransportGroup(Section):
    """Defaults that several transports share: every key of a transport, for those that do not set it themselves."""

    id: Id = required("The name of the group, for `group` of transports.", unit="id, unique among the groups")
    connection: Connection = section(Connection, "Where to connect to.")
    routes: Routes = setting(
        {},
        "Another host for the mail of single domains; .example.com is every domain below example.com (Postfix "
        "transport_maps).",
        unit="next hop by domain",
    )
    allow: Allow = section(Allow, "Which addresses from DNS are allowed.")
    hostname: HostName | None = setting(
        None,
        "Our name in EHLO (Postfix smtp_helo_name).",
        unit="host name",
        absent="this host's fully qualified name, or the literal of its address",
    )
    sources: Sources = section(
        list,
        "Source addresses of this host, chosen by weight for each attempt among those of the other host's family "
        "(IPv4 or IPv6). List of sources, default [], which leaves the choice to the system.",
    )
    concurrency: Annotated[int, whole(1, 10_000)] = setting(
        20,
        "The most simultaneous connections to one destination (Postfix default_destination_concurrency_limit).",
        unit="connections",
    )
    concurrencyper: Literal["worker", "host"] = setting(
        "worker",
        "worker: `concurrency` is the limit of each worker; host: it is the limit of all workers together per host, "
        "counted in PostgreSQL.",
        unit="word",
    )
    feedback: Feedback = section(
        Feedback, "How the number of connections to a destination grows and shrinks, and when it counts as dead."
    )
    recipients: Annotated[int, whole(1, 10_000)] = setting(
        50,
        "The most recipients in one transaction (Postfix default_destination_recipient_limit); fewer if the host "
        "announces LIMITS RCPTMAX or RCPTDOMAINMAX (RFC 9422).",
        unit="recipients",
    )
    maxlinelength: Annotated[int, whole(78, 2_147_483_647)] = setting(
        998,
        "The longest line of content that hosts get, without its end; a longer one is broken before white space, or "
        "else by a line end and a space (Postfix smtp_line_length_limit). Signatures that the message came with break "
        "too.",
        unit="octets",
    )
    discardkeywords: list[Keyword] = setting(
        [],
        "Keywords in hosts' replies to EHLO that count as not offered (Postfix smtp_discard_ehlo_keywords): for hosts "
        "that announce what they do not do. STARTTLS is left to tls.mode.",
        unit="list of DSN, LIMITS, MT-PRIORITY, PIPELINING, SIZE",
    )
    windows: Windows = section(
        list,
        "Delivery windows: mail leaves over this transport only inside them; other mail waits for the next window "
        "without counting a try. List of windows, default [], which means always.",
    )
    pooling: Pooling = section(Pooling, "How long a connection is kept for further messages.")
    tls: TransportTls = section(TransportTls, "TLS to the next hop.")
    timeout: Timeout = section(Timeout, "How long to wait for the other server, step by step.")
    retry: Retry = section(Retry, "When a deferred recipient is tried again, and when it is given up.")
    keepconversation: bool = setting(
        False,
        "Whether the SMTP conversation of each try that does not deliver is kept with it for `queue trace`: commands "
        "and replies, 8,000 characters at most, never content or credentials. It names the other recipients of the "
        "message.",
        unit="true or false",
    )


class Transport(TransportGroup):
    """A way to reach a set of destinations."""

    id: Id = setting("default", "The name of the transport, for policy rules.", unit="id, unique")
    group: Id | None = setting(
        None,
        "The group of `transportgroups` whose keys apply here where this transport does not set its own (Halon "
        "transportgroups).",
        unit="id of a group",
        absent="no group",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        """Here and not in a group, which may leave to its transports what makes it fit."""
        connection, mode = self.connection, self.tls.mode
        problems = _smtp_ports(connection) if connection.protocol == "lmtp" else []
        logins = [connection.auth, *(host.auth for host in connection.hosts)]
        if mode == "disabled" and any(login is not None and login.over != "cleartext" for login in logins):
            text = "disabled would show the credentials of connection.auth; allowed: another mode, or over: cleartext"
            problems.append((("tls", "mode"), text))
        if connection.socket is not None and mode not in {"disabled", "optional"}:
            text = f"{mode} cannot be had over connection.socket; allowed: disabled, optional"
            problems.append((("tls", "mode"), text))
        if connection.socket is not None and self.sources:
            problems.append((("sources",), "mean nothing over connection.socket; allowed: none"))
        if problems:
            raise MisplacedError(problems)
        return self


def _smtp_ports(connection: Connection) -> list[tuple[tuple[str | int, ...], str]]:
    """The ports that LMTP must not be spoken at (RFC 2033 section 5), as in MisplacedError."""
    ports: list[tuple[tuple[str | int, ...], int]] = [
        (("connection", "hosts", index, "port"), host.port) for index, host in enumerate(connection.hosts)
    ]
    if not ports and connection.socket is None:
        ports = [(("connection", "port"), connection.port)]
    text = f"{SMTP_PORT} is the port of SMTP; allowed with protocol lmtp: another one, such as 24"
    return [(path, text) for path, port in ports if port == SMTP_PORT]


def unknown_groups(
    transports: Sequence[Transport], groups: Sequence[TransportGroup]
) -> list[tuple[tuple[str | int, ...], str]]:
    """Each transport whose group is not there: its place in queued.yaml, and what is wrong; as in MisplacedError."""
    known = [group.id for group in groups]
    allowed = ", ".join(known) or "none, for transportgroups is empty"
    return [
        (("transports", index, "group"), f"group {show(transport.group)} does not exist; allowed: {allowed}")
        for index, transport in enumerate(transports)
        if transport.group is not None and transport.group not in known
    ]
