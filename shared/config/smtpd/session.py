"""session — limits of one SMTP connection, in smtpd.yaml

Owns: the sections `servers[].limits`, `servers[].timeout`, `servers[].phases.connect`, `phases.mailfrom`,
    `phases.rcptto`, `listeners[].proxy`, `listeners[].xclient` and `memory`.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/postconf.5.html; RFC 9422 (LIMITS), RFC 4865 (FUTURERELEASE)
"""

from typing import Annotated, Literal

from shared.config.fields import Duration, Fraction, Interval, IpNetwork, Section, Size, setting, whole


class Proxy(Section):
    """Proxies that may pass on a client's address by the PROXY protocol (versions 1 and 2)."""

    networks: list[IpNetwork] = setting(
        [],
        "Clients in these networks must start each connection with a PROXY header; from other clients it counts as "
        "talking before the greeting (Postfix smtpd_upstream_proxy_protocol).",
        unit="list of IP networks",
    )
    timeout: Interval = setting(
        "5s", "How long to wait for the header (Postfix smtpd_upstream_proxy_timeout).", unit="duration"
    )


class Xclient(Section):
    """Clients that may pass on another client's attributes by XCLIENT."""

    networks: list[IpNetwork] = setting(
        [],
        "Clients in these networks may use XCLIENT (Postfix smtpd_authorized_xclient_hosts). XCLIENT without ADDR "
        "keeps the address of its own client, and its right to relay, as in Postfix.",
        unit="list of IP networks",
    )


class ConnectPhase(Section):
    """What happens before the first command, and to clients that send out of turn."""

    greetdelay: Duration = setting(
        "0s",
        "How long to wait before the greeting; a client that sends something meanwhile is not a mail server (Postfix "
        "postscreen_greet_wait).",
        unit="duration",
    )
    earlytalker: Literal["reject", "allow"] = setting(
        "reject",
        "What happens to a client that sends something before the greeting: reject it with 554, or allow it (Postfix "
        "postscreen_greet_action).",
        unit="word",
    )
    unauthpipelining: Literal["reject", "allow"] = setting(
        "reject",
        "What happens to a client that does not wait for the reply to a command that must be the last of a group "
        "(RFC 2920): reject it with 554, or allow it (Postfix smtpd_forbid_unauth_pipelining).",
        unit="word",
    )


class MailfromPhase(Section):
    """What MAIL FROM may ask for."""

    maxhold: Interval | None = setting(
        "7d",
        "How far ahead a client may schedule its message (FUTURERELEASE, RFC 4865); null turns it off.",
        unit="duration",
    )


class RcpttoPhase(Section):
    """Limits on RCPT TO."""

    maxrecipients: Annotated[int, whole(1, 1_000_000)] = setting(
        1000,
        "The most recipients of one message; further ones get 452 (Postfix smtpd_recipient_limit).",
        unit="recipients",
    )
    overshoot: Annotated[int, whole(0, 1_000_000)] = setting(
        1000,
        "How many recipients beyond maxrecipients get 452 before each further one counts as a useless command "
        "(Postfix smtpd_recipient_overshoot_limit).",
        unit="recipients",
    )
    addressliteral: Literal["reject", "accept"] = setting(
        "reject",
        "What happens to recipients like user@[192.0.2.1], which name a server by its address and may so reach behind "
        "firewalls: reject or accept. The same applies to user@192.0.2.1 (Postfix resolve_numeric_domain).",
        unit="word",
    )
    sourceroute: Literal["ignore", "reject"] = setting(
        "ignore",
        "What happens to a path like <@a.example,@b.example:user@c.example>: ignore the route (RFC 5321 appendix C), "
        "or reject the address.",
        unit="word",
    )


class Limits(Section):
    """Limits on how much a client may send and how many errors it may make."""

    line: Annotated[int, whole(512, 65_536)] = setting(
        2048, "The longest command line to read (Postfix line_length_limit).", unit="octets"
    )
    softerrors: Annotated[int, whole(0, 10_000)] = setting(
        10,
        "How many errors a client may make before its replies are delayed (Postfix smtpd_soft_error_limit).",
        unit="errors",
    )
    errordelay: Duration = setting(
        "1s",
        "By how much each error above softerrors delays the replies that follow (Postfix smtpd_error_sleep_time, "
        "where the delay does not grow).",
        unit="duration",
    )
    harderrors: Annotated[int, whole(1, 10_000)] = setting(
        20,
        "How many errors a client may make before it is disconnected with 421 (Postfix smtpd_hard_error_limit); an "
        "accepted message resets the count.",
        unit="errors",
    )
    junkcommands: Annotated[int, whole(0, 1_000_000)] = setting(
        100,
        "How many useless commands (HELO, EHLO, NOOP, RSET, VRFY, EXPN, ETRN, HELP, BDAT 0, and those that get 4xx) a "
        "client may send between two messages before each further one counts as an error (Postfix "
        "smtpd_junk_command_limit; there 4xx counts as an error at once).",
        unit="commands",
    )
    messages: Annotated[int, whole(1, 1_000_000_000)] | None = setting(
        None,
        "The most messages on one connection, announced as LIMITS MAILMAX (RFC 9422); further ones get 452.",
        unit="messages",
        absent="no limit, as in Postfix",
    )
    datarate: Annotated[int, whole(1, 1_000_000_000)] = setting(
        500,
        "The slowest transfer of content that is accepted (Postfix smtpd_min_data_rate, under "
        "smtpd_per_request_deadline).",
        unit="octets per second",
    )


class ServerTimeout(Section):
    """How long a server waits for its client."""

    idle: Interval = setting(
        "5m",
        "How long a client may take to send a complete command, or to read our reply, before it is disconnected "
        "(Postfix smtpd_timeout).",
        unit="duration",
    )
    tls: Interval = setting(
        "1m", "How long a TLS handshake may take (Postfix smtpd_starttls_timeout, 300 seconds).", unit="duration"
    )


class Memory(Section):
    """Limits on the memory for content in transfer."""

    bodies: Size = setting(
        "256MiB",
        "The most content that one process holds for all its connections, from DATA until its reply; above that "
        "clients get 452. The default has room for 26 messages of the largest size, and leaves room in 512 MiB for "
        "the copies that go to the database.",
        unit="size in bytes",
    )
    share: Fraction = setting(
        0.25,
        "The part of bodies that an address without relay rights (IPv6: its /64) may hold; one message of the largest "
        "size is always allowed.",
        unit="fraction from 0 to 1",
    )
    reserve: Fraction = setting(
        0.25,
        "The part of bodies that is reserved for clients that may relay.",
        unit="fraction from 0 to 1",
    )
