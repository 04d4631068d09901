"""smtpd_config — everything smtpd.yaml can say

Owns: the models of listeners, limits, relaying, submitting users and the spool.
Called by: shared.config, which fills them; smtpd reads them.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/postconf.5.html; Halon's smtpd.yaml for `servers[].phases`
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from shared.config_fields import (
    Checked,
    FilePath,
    Host,
    HostName,
    Id,
    Interval,
    IpNetwork,
    MessageSize,
    Section,
    Size,
    Text,
    required,
    section,
    setting,
    unique_ids,
    whole,
)
from shared.environment_config import SmtpdEnvironment
from shared.policy_config import Policy


def _argon2(value: object) -> str:
    if isinstance(value, str) and value.startswith("$argon2") and value.isprintable():
        return value
    # Unlike other refusals this does not quote the value: it may be the password itself.
    raise ValueError("what is written here is no password hash; allowed: an argon2 hash, which begins with $argon2")


Argon2Hash = Annotated[str, Checked(_argon2, {"type": "string", "pattern": r"^\$argon2"})]


class Listener(Section):
    """One socket that accepts SMTP."""

    address: Host = setting("127.0.0.1", "The address to listen on.", unit="IP address or host name")
    port: Annotated[int, whole(0, 65535)] = setting(
        2525, "The TCP port to listen on; 0 takes any free one.", unit="port number"
    )
    backlog: Annotated[int, whole(1, 65535)] = setting(
        1024, "How many connections may wait to be accepted (listen(2)).", unit="connections"
    )


class Tls(Section):
    """The server's certificate; where it is given, STARTTLS is offered (RFC 3207)."""

    certificate: FilePath = required("The certificate with its chain, in PEM.", unit="path")
    privatekey: FilePath = required("The private key of the certificate, in PEM.", unit="path")


class ServerTimeout(Section):
    """How long a server waits for its client."""

    idle: Interval = setting(
        "5m",
        "How long a client may stay silent before it is disconnected (Postfix smtpd_timeout).",
        unit="duration",
    )


class RcpttoPhase(Section):
    """Limits on RCPT TO."""

    maxrecipients: Annotated[int, whole(1, 1_000_000)] = setting(
        1000,
        "The most recipients of one message; more are answered 452 (Postfix smtpd_recipient_limit).",
        unit="recipients",
    )


class DataPhase(Section):
    """Limits on the content of a message."""

    maxsize: MessageSize = setting(
        10_240_000, "The largest message to accept (Postfix message_size_limit).", unit="size in bytes"
    )
    maxhops: Annotated[int, whole(1, 1000)] = setting(
        50,
        "The most Received lines a message may carry before it counts as looping (Postfix hopcount_limit).",
        unit="lines",
    )
    barenewline: Literal["reject", "normalize"] = setting(
        "reject",
        "What happens to lines that end without CR LF, a way to smuggle mail: reject the message, or normalize "
        "them (Postfix smtpd_forbid_bare_newline).",
        unit="word",
    )


class Phases(Section):
    """Limits by phase of the SMTP conversation."""

    rcptto: RcpttoPhase = section(RcpttoPhase, "Limits on RCPT TO.")
    data: DataPhase = section(DataPhase, "Limits on the content of a message.")


class Server(Section):
    """Listeners that share one name, one certificate and one set of limits."""

    id: Id = setting("default", "The name of the server, for logs and metrics.", unit="id, unique")
    hostname: HostName | None = setting(
        None,
        "The name we give ourselves in the greeting, the EHLO reply and Received (Postfix myhostname).",
        unit="host name",
        absent="this host's fully qualified name",
    )
    listeners: Annotated[list[Listener], Field(min_length=1)] = section(
        lambda: [Listener()],
        "The sockets to accept SMTP on. List of address, port and backlog, default one with each at its default.",
    )
    tls: Tls | None = setting(
        None,
        "The certificate and private key that make STARTTLS offered.",
        unit="section",
        absent="STARTTLS not offered",
    )
    timeout: ServerTimeout = section(ServerTimeout, "How long to wait for a client.")
    phases: Phases = section(Phases, "Limits by phase of the SMTP conversation.")


class Relay(Section):
    """Who may send without authenticating."""

    networks: list[IpNetwork] = setting(
        ["127.0.0.0/8", "::1/128"],
        "Clients in these networks may send without authenticating; all others must (Postfix mynetworks).",
        unit="list of IP networks",
    )


class Authentication(Section):
    """Who may send after authenticating (RFC 4954)."""

    users: dict[Text, Argon2Hash] = setting(
        {}, "The users that may send, each with the argon2 hash of the password.", unit="hash by user", repr=False
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
    timeout: Interval = setting(
        "30s", "How long a client may wait for its commit before it is told 451.", unit="duration"
    )
    synchronous_commit: Literal["on", "remote_apply", "remote_write", "local", "off"] = setting(
        "on",
        "What a commit waits for (PostgreSQL synchronous_commit): on, remote_apply, remote_write, local, or off, "
        "which loses the last accepted messages in a crash.",
        unit="word",
    )
    maxpending: Size = setting(
        "64MiB",
        "The most content that may wait for its commit; beyond it clients are told 452.",
        unit="size in bytes",
    )


class SmtpdConfig(Section):
    """The configuration of smtpd: accepts mail over SMTP and commits it to the queue."""

    environment: SmtpdEnvironment = section(SmtpdEnvironment, "Where smtpd lives.")
    servers: Annotated[list[Server], Field(min_length=1), AfterValidator(unique_ids)] = section(
        lambda: [Server()],
        "The SMTP servers to run. List of servers, default one with every key at its default.",
    )
    relay: Relay = section(Relay, "Who may send without authenticating.")
    authentication: Authentication = section(Authentication, "Who may send after authenticating.")
    policy: Policy = section(Policy, "Decides at acceptance what becomes of each recipient.")
    spool: Spool = section(Spool, "How accepted messages are committed to the queue.")
