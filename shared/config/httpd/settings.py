"""settings — the whole of httpd.yaml

Owns: the models of where the API listens, what a client may send, and how often.
Guarantees: every limit has a default, so that a client without a key costs little.
See: RFC 9110 and RFC 9112 (HTTP), RFC 6585 (429, 431).
"""

from typing import Annotated, Literal

from shared.config.environment import Log
from shared.config.fields import (
    FilePath,
    Id,
    Interval,
    IpNetwork,
    Section,
    Size,
    Text,
    required,
    section,
    setting,
    whole,
)
from shared.config.httpd.oidc import HttpdOidc
from shared.config.metrics import Listen
from shared.config.smtpd.overload import Account, Processes

_COUNT = Annotated[int, whole(0, 1_000_000_000)]


class HttpdDatabase(Section):
    """The queue's database as httpd sees it."""

    uri: Text = setting(
        "embedded:",
        "The database that holds the queue. The login must be able to act for principals: the owner, as in the "
        "embedded server, or one with the roles of docs/how-to/rights/grant-roles.md.",
        unit="text",
        repr=False,
    )
    connections: Annotated[int, whole(2, 1000)] = setting(
        8,
        "The most connections of each process for requests that look and act; further requests wait for one.",
        unit="connections",
    )


class HttpdEnvironment(Section):
    """Where httpd lives."""

    database: HttpdDatabase = section(HttpdDatabase, "The database that holds the queue.")
    var: FilePath = setting(
        "var", "The folder for the embedded server and for run-time files.", unit="path from the working folder"
    )
    log: Log = section(Log, "What is written to the log.")


class HttpdTls(Section):
    """The certificate for HTTPS."""

    certificate: FilePath = required("The certificate with its chain, in PEM.", unit="path")
    privatekey: FilePath = required("The private key of the certificate, in PEM.", unit="path")
    minimum: Literal["TLSv1.2", "TLSv1.3"] = setting("TLSv1.2", "The oldest version of TLS to accept.", unit="word")


class HttpdProxy(Section):
    """Proxies that may pass on a client's address."""

    networks: list[IpNetwork] = setting(
        [],
        "Clients in these networks are proxies, whose X-Forwarded-For says which client they speak for.",
        unit="list of IP networks",
    )


class HttpdMail(Section):
    """By whose rules mail is taken."""

    smtpd: FilePath = setting(
        "smtpd.yaml",
        "The file of smtpd whose policy, limits, rates and spool hold for mail that comes by HTTP too.",
        unit="path from the folder of this file",
    )
    server: Id | None = setting(
        None,
        "The server of that file whose host name and limits hold here, and which rules see.",
        unit="id of servers[]",
        absent="the first",
    )


class HttpdLimits(Section):
    """What one client may send."""

    head: Size = setting(
        "32KiB", "The most octets of a request's line and header; more gets 431.", unit="size in bytes"
    )
    body: Size = setting(
        "64MiB",
        "The most octets of a request's body; more gets 413. Base64 makes an attachment a third larger.",
        unit="size in bytes",
    )
    bodies: Size = setting(
        "128MiB",
        "The most octets of the bodies of all requests at once; above that, requests get 503. httpd takes up to three "
        "times as much while it makes and commits their mail, so the default leaves room in 512 MiB.",
        unit="size in bytes",
    )
    connections: Annotated[int, whole(1, 1_000_000)] = setting(
        2000, "The most open connections; further ones get 503.", unit="connections"
    )


class HttpdTimeout(Section):
    """How long a client and a request may take."""

    head: Interval = setting("10s", "For the whole head of a request.", unit="duration")
    body: Interval = setting("60s", "For the whole body of a request.", unit="duration")
    idle: Interval = setting("75s", "For the next request on a connection.", unit="duration")
    query: Interval = setting(
        "10s", "For one statement of PostgreSQL in a request that looks or acts; then it gets 503.", unit="duration"
    )
    change: Interval = setting(
        "20s",
        "For a request that changes mail: it stops after the batch in which this passes, and its answer says how to "
        "go on.",
        unit="duration",
    )


class HttpdRates(Section):
    """How often."""

    window: Interval = setting("1m", "The time in which requests and failures are counted.", unit="duration")
    requests: _COUNT = setting(
        0, "The most requests of one API key; further ones get 429. 0: no limit.", unit="requests"
    )
    failures: _COUNT = setting(
        20,
        "The most requests of one address without a key that is valid; further ones get 429, unless they show a key "
        "that was valid here before. 0: no limit.",
        unit="requests",
    )


class HttpdConsole(Section):
    """The console: pages in a browser, for people who sign in."""

    enabled: bool = setting(True, "Whether /console is served.", unit="truth")
    links: bool = setting(
        True, "Whether the links of digests work (/decide), also where /console is not served.", unit="truth"
    )
    session: Interval = setting("12h", "How long a session lasts; then its person signs in again.", unit="duration")
    idle: Interval = setting("1h", "How long a session lasts without a request.", unit="duration")
    failures: _COUNT = setting(
        10,
        "The most wrong passwords of one address in rates.window, and ten times as many for one name; further ones are "
        "refused unread. 0: no limit.",
        unit="sign-ins",
    )


class HttpdMetrics(Section):
    """The address at which httpd answers Prometheus and checks of its health."""

    listen: Listen | None = setting(
        None, "The address of /metrics, /healthy and /ready.", unit="host and port", absent="off"
    )


class HttpdShutdown(Section):
    """The stop."""

    timeout: Interval = setting("30s", "How long requests may take to end when httpd stops.", unit="duration")


class HttpdConfig(Section):
    """The configuration of httpd: the API over HTTP."""

    environment: HttpdEnvironment = section(HttpdEnvironment, "Where httpd finds its database, files and log.")
    listen: Listen = setting(
        "127.0.0.1:8025",
        "The address to listen on. Other hosts should reach it over TLS only: give tls, or put a proxy before it.",
        unit="host and port",
    )
    processes: Processes = setting(
        1,
        "How many processes answer requests on the same port (SO_REUSEPORT). Limits hold for all of them together.",
        unit="processes",
    )
    tls: HttpdTls | None = setting(None, "The certificate for HTTPS.", unit="section", absent="HTTP")
    proxy: HttpdProxy = section(HttpdProxy, "Proxies that may pass on a client's address.")
    user: Account | None = setting(
        None,
        "The account to switch to after the port is bound, if started as root. It must be able to read the "
        "certificate and to connect to the database.",
        unit="account",
        absent="the account that started httpd",
    )
    group: Account | None = setting(
        None, "The group to switch to, together with user.", unit="group", absent="the groups of user"
    )
    mail: HttpdMail = section(HttpdMail, "By whose rules mail is taken.")
    limits: HttpdLimits = section(HttpdLimits, "What one client may send.")
    timeout: HttpdTimeout = section(HttpdTimeout, "How long a client and a request may take.")
    rates: HttpdRates = section(HttpdRates, "How often a key and an address may ask.")
    oidc: HttpdOidc | None = setting(
        None,
        "The provider whose tokens people may show instead of an API key.",
        unit="section",
        absent="API keys alone",
    )
    console: HttpdConsole = section(HttpdConsole, "The console: pages in a browser, for people who sign in.")
    metrics: HttpdMetrics = section(HttpdMetrics, "Metrics and health pages over HTTP.")
    shutdown: HttpdShutdown = section(HttpdShutdown, "The stop.")
