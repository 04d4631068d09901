"""session — limits of one SMTP connection, as smtpd.yaml says them

Owns: the sections `servers[].limits`, `servers[].timeout`, `servers[].phases.connect`, `phases.mailfrom`,
    `phases.rcptto`, `listeners[].proxy`, `listeners[].xclient` and `memory`.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/postconf.5.html; RFC 9422 (LIMITS), RFC 4865 (FUTURERELEASE)
"""

from typing import Annotated, Literal

from shared.config.fields import Duration, Fraction, Interval, IpNetwork, Section, Size, setting, whole


class Proxy(Section):
    """Who may say on whose behalf it connects, by the PROXY protocol (versions 1 and 2)."""

    networks: list[IpNetwork] = setting(
        [],
        "Clients in these networks must open each connection with a PROXY header; from anybody else it counts as "
        "talking early (Postfix smtpd_upstream_proxy_protocol).",
        unit="list of IP networks",
    )
    timeout: Interval = setting(
        "5s", "How long to wait for the header (Postfix smtpd_upstream_proxy_timeout).", unit="duration"
    )


class Xclient(Section):
    """Who may say by XCLIENT for which client it speaks."""

    networks: list[IpNetwork] = setting(
        [],
        "Clients in these networks may use XCLIENT (Postfix smtpd_authorized_xclient_hosts).",
        unit="list of IP networks",
    )


class ConnectPhase(Section):
    """What happens before a client may speak, and who speaks out of turn."""

    greetdelay: Duration = setting(
        "0s",
        "How long to wait before the greeting; a client that talks meanwhile is no mail server (Postfix "
        "postscreen_greet_wait).",
        unit="duration",
    )
    earlytalker: Literal["reject", "allow"] = setting(
        "reject",
        "What happens to a client that talks before the greeting: reject it with 554, or allow it (Postfix "
        "postscreen_greet_action).",
        unit="word",
    )
    unauthpipelining: Literal["reject", "allow"] = setting(
        "reject",
        "What happens to a client that sends on before the reply to a command that must be the last of a group "
        "(RFC 2920): reject it with 554, or allow it (Postfix smtpd_forbid_unauth_pipelining).",
        unit="word",
    )


class MailfromPhase(Section):
    """What MAIL FROM may ask for."""

    maxhold: Interval | None = setting(
        "7d",
        "How far ahead a client may have its message delivered (FUTURERELEASE, RFC 4865); null offers it to nobody.",
        unit="duration",
    )


class RcpttoPhase(Section):
    """Limits on RCPT TO."""

    maxrecipients: Annotated[int, whole(1, 1_000_000)] = setting(
        1000,
        "The most recipients of one message; more are answered 452 (Postfix smtpd_recipient_limit).",
        unit="recipients",
    )
    overshoot: Annotated[int, whole(0, 1_000_000)] = setting(
        1000,
        "How many recipients beyond maxrecipients are answered 452 before each counts as a command that leads nowhere "
        "(Postfix smtpd_recipient_overshoot_limit).",
        unit="recipients",
    )
    addressliteral: Literal["reject", "accept"] = setting(
        "reject",
        "What happens to recipients like user@[192.0.2.1], which name a server by its address and so reach behind "
        "firewalls: reject or accept. So do bare numbers, as in user@192.0.2.1 (Postfix resolve_numeric_domain).",
        unit="word",
    )
    sourceroute: Literal["ignore", "reject"] = setting(
        "ignore",
        "What happens to a path like <@a.example,@b.example:user@c.example>: ignore the route (RFC 5321 appendix C), "
        "or reject the address.",
        unit="word",
    )


class Limits(Section):
    """How much a client may say, and how often it may be wrong."""

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
        "How many errors a client may make before it is disconnected with 421 (Postfix smtpd_hard_error_limit); a "
        "message that is accepted makes good for all.",
        unit="errors",
    )
    junkcommands: Annotated[int, whole(0, 1_000_000)] = setting(
        100,
        "How many commands that lead nowhere (HELO, EHLO, NOOP, RSET, VRFY, EXPN, ETRN, HELP, BDAT 0, and those that "
        "are answered 4xx) a client may give between two messages before each counts as an error (Postfix "
        "smtpd_junk_command_limit; there 4xx counts as an error at once).",
        unit="commands",
    )
    messages: Annotated[int, whole(1, 1_000_000_000)] | None = setting(
        None,
        "The most messages of one connection, told as LIMITS MAILMAX (RFC 9422); more are answered 452.",
        unit="messages",
        absent="no limit, as in Postfix",
    )
    datarate: Annotated[int, whole(1, 1_000_000_000)] = setting(
        500,
        "The slowest transfer of content to put up with (Postfix smtpd_min_data_rate, under "
        "smtpd_per_request_deadline).",
        unit="octets per second",
    )


class ServerTimeout(Section):
    """How long a server waits for its client."""

    idle: Interval = setting(
        "5m",
        "How long a client may take for a command, sent in whole, or to take our reply, before it is disconnected "
        "(Postfix smtpd_timeout).",
        unit="duration",
    )
    tls: Interval = setting(
        "1m", "How long a TLS handshake may take (Postfix smtpd_starttls_timeout, 300 seconds).", unit="duration"
    )


class Memory(Section):
    """How much memory content in transfer may take."""

    bodies: Size = setting(
        "256MiB",
        "The most content that one process holds at once, of all its connections, from DATA until its reply; beyond "
        "it clients are told 452. It holds 26 messages of the largest size, and leaves room in a gigabyte for the "
        "copies that go to the database.",
        unit="size in bytes",
    )
    share: Fraction = setting(
        0.25,
        "The part of bodies that one address (IPv6: its /64) may hold which may not relay, and a message of the "
        "largest size in any case.",
        unit="fraction from 0 to 1",
    )
    reserve: Fraction = setting(
        0.25,
        "The part of bodies that is kept for clients that may relay, however many others there are.",
        unit="fraction from 0 to 1",
    )
