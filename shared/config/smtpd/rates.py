"""rates — limits on one client, one network and one user of smtpd

Owns: the section `rates` of smtpd.yaml.
Guarantees: every default is Postfix's, which limits only the sessions one address holds at once; 0 means no limit, as
    in Postfix.
See: https://www.postfix.org/TUNING_README.html#conn_limit, anvil(8); RFC 6177 (what one IPv6 site is given)
"""

from typing import Annotated

from shared.config.fields import Interval, IpNetwork, Section, section, setting, whole

_Most = Annotated[int, whole(0, 1_000_000_000)]


def _most(default: int, what: str, postfix: str | None = None) -> int:
    named = f" (Postfix {postfix})" if postfix else ""
    found: int = setting(default, f"The most {what}; 0: no limit{named}.", unit=what.split(maxsplit=1)[0])
    return found


class AddressRates(Section):
    """Limits on one client address; for IPv6 on one /64, since a host can use every address in it."""

    sessions: _Most = _most(50, "sessions of one address at once", "smtpd_client_connection_count_limit")
    connections: _Most = _most(
        0, "connections of one address within rates.window", "smtpd_client_connection_rate_limit"
    )
    messages: _Most = _most(0, "messages from one address within rates.window", "smtpd_client_message_rate_limit")
    recipients: _Most = _most(0, "recipients from one address within rates.window", "smtpd_client_recipient_rate_limit")


class NetworkRates(Section):
    """Limits on all addresses of one network together."""

    ipv4prefix: Annotated[int, whole(0, 32)] = setting(24, "The prefix length of an IPv4 network.", unit="bits")
    ipv6prefix: Annotated[int, whole(0, 128)] = setting(
        56, "The prefix length of an IPv6 network (RFC 6177: the usual size of a site).", unit="bits"
    )
    sessions: _Most | None = setting(
        None,
        "The most sessions of one network at once; 0: no limit. All networks of one IPv6 /48 have twice as many.",
        unit="sessions",
        absent="a quarter of load.sessions of all processes",
    )
    connections: _Most = _most(0, "connections of one network within rates.window")
    messages: _Most = _most(0, "messages from one network within rates.window")
    recipients: _Most = _most(0, "recipients from one network within rates.window")


class UserRates(Section):
    """Limits on one authenticated user, from any address; a user's own limits take precedence."""

    messages: _Most = _most(0, "messages from one user within rates.window")
    recipients: _Most = _most(0, "recipients from one user within rates.window")


class Rates(Section):
    """Limits on what one client may request, counted over all processes of this host."""

    window: Interval = setting(
        "1m",
        "The time within which connections, messages and recipients are counted (Postfix anvil_rate_time_unit).",
        unit="duration",
    )
    exempt: list[IpNetwork] | None = setting(
        None,
        "Clients in these networks are not limited (Postfix smtpd_client_event_limit_exceptions).",
        unit="list of IP networks",
        absent="those of relay.networks",
    )
    address: AddressRates = section(AddressRates, "Limits on one client address.")
    network: NetworkRates = section(NetworkRates, "Limits on all addresses of one network together.")
    user: UserRates = section(UserRates, "Limits on one authenticated user.")
