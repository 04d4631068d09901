"""routing — the route to a destination, in queued.yaml

Owns: the models of a transport's connection (smart hosts or MX), its limits, overrides and permissions, and of DNS.
Guarantees: by default all mail goes to `connection.server`, as one smart host; without it no next hop is configured.
    Credentials are never sent to a host that DNS names. A host to deliver to is parsed once, here: `host`, `host:port`,
    `192.0.2.1:25`, `[2001:db8::1]:25`.
See: Postfix relayhost, transport(5), smtp_mx_address_limit, smtp_mx_session_limit and proxy_interfaces; Halon's
    transports; RFC 5321 section 5.
"""

import re
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, model_validator

from shared.config.fields import (
    HIGHEST_PORT,
    HOST_PATTERN,
    Checked,
    Domain,
    Duration,
    FilePath,
    Host,
    Interval,
    MisplacedError,
    Port,
    Section,
    is_address,
    quotes_hint,
    section,
    setting,
    whole,
)
from shared.config.queued.login import Auth
from shared.mail.domain import comparable
from shared.masking import show

_BRACKETED = re.compile(r"\[([0-9A-Fa-f.:]+)\](?::([0-9]{1,5}))?")
_PLAIN = re.compile(rf"({HOST_PATTERN})(?::([0-9]{{1,5}}))?")


_THIS_HOST = "127.0.0.1"
SMTP_PORT = 25


class HostPort(NamedTuple):
    """A host name or address without brackets, and a port; None where none was written."""

    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def place(value: object) -> HostPort:
    """A place to deliver to, as it is written; ValueError with what is allowed."""
    if isinstance(value, HostPort):
        return value
    if isinstance(value, str) and (found := _read_place(value)) is not None:
        return found
    raise ValueError(
        f"{show(value)} is not a place to deliver to; allowed: host, host:port or [address]:port{quotes_hint(value)}"
    )


def _read_place(text: str) -> HostPort | None:
    if ":" in text and is_address(text):
        return HostPort(text, None)  # an IPv6 address alone
    bracketed = _BRACKETED.fullmatch(text)
    if bracketed is not None:
        host, port = bracketed[1], bracketed[2]
        known = is_address(host)
    else:
        plain = _PLAIN.fullmatch(text)
        if plain is None:
            return None
        host, port = plain[1], plain[plain.re.groups]
        # All digits at the end would be an IPv4 address.
        known = is_address(host) or not host.rpartition(".")[2].isdigit()
    if not known or (port is not None and not 1 <= int(port) <= HIGHEST_PORT):
        return None
    return HostPort(host, None if port is None else int(port))


def _server(value: object) -> HostPort:
    found = place(value)
    if not is_address(found.host):
        raise ValueError(f"{show(value)} is not a name server; allowed: an IP address, or [address]:port")
    return found


def _each_once(routes: object) -> object:
    """The overrides as written; raises MisplacedError for a domain that is there in two spellings."""
    seen: set[str] = set()
    for domain in routes if isinstance(routes, dict) else ():
        spelling = comparable(str(domain))
        if spelling in seen:
            raise MisplacedError([((domain,), f"{show(domain)} is there twice; allowed: each domain once")])
        seen.add(spelling)
    return routes


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{show(value)} is neither; allowed: true or false")


Truth = Annotated[bool, Checked(_truth, {"type": "boolean"})]
NextHop = Annotated[HostPort, Checked(place, {"type": "string", "minLength": 1})]
NameServer = Annotated[HostPort, Checked(_server, {"type": "string", "minLength": 1})]


class SmartHost(Section):
    """One of several hosts that mail is sent to."""

    server: Host = setting("127.0.0.1", "The smart host.", unit="host name or IP address")
    port: Port = setting(25, "The TCP port of the smart host.", unit="port number")
    preference: Annotated[int, whole(0, 65535)] = setting(
        10, "Hosts with a lower preference are tried first, as with MX.", unit="number"
    )
    weight: Annotated[int, whole(1, 65535)] = setting(
        1, "How often it is first among hosts of the same preference, relative to the others.", unit="number"
    )
    auth: Auth | None = setting(
        None, "The login at this host.", unit="section", absent="connection.auth, if there is one"
    )


class Connection(Section):
    """Where a transport connects to."""

    protocol: Literal["smtp", "lmtp"] = setting(
        "smtp",
        "smtp, or lmtp: the host delivers to mailboxes and replies for each recipient (RFC 2033). With lmtp, mode "
        "must be smarthost and the port must not be 25.",
        unit="word",
    )
    mode: Literal["smarthost", "mx"] = setting(
        "smarthost",
        "smarthost: all mail goes to `server`, or to `hosts`; mx: to the mail exchangers of the recipient's domain in "
        "DNS.",
        unit="word",
    )
    server: Host | None = setting(
        None,
        "The host to deliver to.",
        unit="host name or IP address",
        absent="no next hop: mail is tried at 127.0.0.1, `pillarbox doctor` raises an alarm, and `make up` delivers to "
        "a sink",
    )
    port: Port = setting(25, "The TCP port to deliver to.", unit="port number")
    socket: FilePath | None = setting(
        None,
        "The Unix socket to connect to instead of `server`, such as /run/dovecot/lmtp; with protocol lmtp only.",
        unit="path",
        absent="`server` and `port`",
    )
    auth: Auth | None = setting(
        None,
        "The login at `server`, or at those of `hosts` without an auth of their own; never at hosts of `routes`.",
        unit="section",
        absent="no login",
    )
    hosts: list[SmartHost] = section(
        list,
        "Smart hosts to use instead of `server`, in order of preference. List of hosts, default [].",
    )
    addresses: Annotated[int, whole(1, 1000)] = setting(
        5, "The most addresses that one attempt tries to connect to (Postfix smtp_mx_address_limit).", unit="addresses"
    )
    sessions: Annotated[int, whole(1, 1000)] = setting(
        2,
        "The most of these hosts that may greet us and then fail before any content was sent (Postfix "
        "smtp_mx_session_limit).",
        unit="sessions",
    )
    avoid: Duration = setting(
        "1m",
        "How long a host that could not be reached is tried after the others of its preference; each worker remembers "
        "for itself. 0s turns it off.",
        unit="duration",
    )
    sites: Truth = setting(
        False,
        "Whether recipients of one message in different domains share a transaction if the domains have the same mail "
        "exchangers (KumoMTA site name).",
        unit="truth",
    )

    @property
    def smarthost(self) -> str:
        """The host of `server`; this one where none is named."""
        return self.server or _THIS_HOST

    @property
    def names_next_hop(self) -> bool:
        """Whether anything here says where mail goes: a server, hosts, a socket, mode mx, or a port other than 25."""
        elsewhere = self.mode == "mx" or bool(self.hosts) or self.socket is not None
        return elsewhere or self.server is not None or self.port != SMTP_PORT

    def login(self, host: str, port: int) -> Auth | None:
        """As whom we log in at this place; None where we do not."""
        for each in self.hosts:
            if (each.server, each.port) == (host, port):
                return each.auth or self.auth
        return self.auth if not self.hosts and (host, port) == (self.smarthost, self.port) else None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        logs_in = self.auth is not None or any(host.auth is not None for host in self.hosts)
        if logs_in and self.mode == "mx":
            raise MisplacedError(
                [(("mode",), "mx would show our credentials to whomever DNS names; allowed with auth: smarthost")]
            )
        if self.socket is not None and self.protocol != "lmtp":
            raise MisplacedError([(("socket",), "is for protocol lmtp; allowed with smtp: server and port")])
        if self.socket is not None and (self.hosts or self.auth is not None):
            other = "hosts" if self.hosts else "auth"
            raise MisplacedError([(("socket",), f"conflicts with {other}; allowed: only one of them")])
        if self.protocol == "lmtp" and self.mode == "mx":
            raise MisplacedError(
                [(("mode",), "mx leads to hosts that speak SMTP; allowed with protocol lmtp: smarthost")]
            )
        return self


class Allow(Section):
    """The addresses that DNS may lead to."""

    private: Truth = setting(
        False,
        "Whether mail may go to private, loopback and link-local addresses that come from DNS or address literals. "
        "Hosts written in this file are always allowed.",
        unit="truth",
    )


class Dns(Section):
    """How DNS is queried."""

    servers: list[NameServer] = setting(
        [], "The name servers; [] means those of /etc/resolv.conf.", unit="list of IP addresses, or address:port"
    )
    trusted: Truth = setting(
        False,
        "Whether to trust the name servers' statement that an answer was validated by DNSSEC (the AD bit). Only for "
        "validating servers on a path that no one else can tamper with, such as 127.0.0.1 (resolv.conf trust-ad). "
        "Without it tls.mode dane finds no records, and REQUIRETLS can prove mail exchangers only by MTA-STS.",
        unit="truth",
    )
    timeout: Interval = setting("10s", "How long one query may take, over all servers.", unit="duration")
    ttl: Interval = setting("1h", "The longest time an answer is cached, whatever its time to live.", unit="duration")
    entries: Annotated[int, whole(1, 10_000_000)] = setting(
        10_000, "The most answers that are cached, with 2 KiB on average.", unit="answers"
    )


class Routing(Section):
    """How the route to a destination is found."""

    ourselves: list[Host] = setting(
        [],
        "Further names and addresses of ourselves, besides this host's own: MX records that lead there are not "
        "followed, to prevent loops (Postfix proxy_interfaces).",
        unit="list of host names and IP addresses",
    )
    dns: Dns = section(Dns, "DNS queries.")


Routes = Annotated[dict[Domain, NextHop], BeforeValidator(_each_once)]
