"""overload — the number of processes, their user, and when they turn clients away

Owns: the keys `processes`, `user`, `group` and the section `load` of smtpd.yaml.
Guarantees: defaults are Postfix's wherever Postfix has the same limit, and name its parameter.
See: https://www.postfix.org/STRESS_README.html; socket(7) SO_REUSEPORT
"""

from typing import Annotated, Any

from shared.config.fields import Fraction, Interval, Section, matching, setting, whole

#: A name as in passwd(5) and group(5).
Account = Annotated[str, matching(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", "the name of an account of this system")]
Processes = Annotated[int, whole(1, 64)]


def processes() -> Any:
    """The key `processes`."""
    return setting(
        1,
        "How many processes accept mail on the same ports (SO_REUSEPORT). One process accepts thousands of messages "
        "per second; more processes than half of the CPUs take time from PostgreSQL (Postfix default_process_limit "
        "bounds processes of one session each).",
        unit="processes",
    )


def user() -> Any:
    """The key `user`."""
    return setting(
        None,
        "The account to switch to after the ports are bound, if started as root (Postfix mail_owner). It must be able "
        "to read the certificates and to connect to the database.",
        unit="account",
        absent="the account that started smtpd",
    )


def group() -> Any:
    """The key `group`."""
    return setting(None, "The group to switch to, together with user.", unit="group", absent="the groups of user")


class Load(Section):
    """When a process turns new clients away so that those it serves do not wait."""

    sessions: Annotated[int, whole(1, 1_000_000)] = setting(
        1000,
        "The most sessions of one process; further clients get 421 at once (Postfix default_process_limit, 100 "
        "processes of one session each).",
        unit="sessions",
    )
    reserve: Fraction = setting(
        0.1,
        "The part of sessions reserved for clients that may relay without a login, by their address or certificate; "
        "when only this part is left, other clients get 421.",
        unit="fraction",
    )
    stress: Fraction = setting(
        0.8,
        "If this part of sessions is in use, clients get less time (Postfix's stress-adaptive behaviour begins when "
        "all sessions are in use).",
        unit="fraction",
    )
    patience: Interval = setting(
        "10s", "How long a client may be silent under stress (Postfix smtpd_timeout under stress).", unit="duration"
    )
    lag: Interval = setting(
        "1s",
        "How late the event loop of the process may run before new clients get 421.",
        unit="duration",
    )
