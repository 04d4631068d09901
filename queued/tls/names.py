"""names — compares a name in a certificate or a policy with the wanted name

Owns: the comparison of presented names with wanted ones, and presented names as text.
Guarantees: pure. A wildcard is the whole leftmost label and matches exactly one label; case and a dot at the end do not
    matter; an address is equal only to an address.
See: RFC 9525 sections 6.3 (names) and 6.4 (addresses), which replaced RFC 6125; RFC 8461 section 4.1; Postfix
    smtp_tls_verify_cert_match.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from shared.config.fields import is_address
from shared.mail.smtp_reply import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST, _LONGEST = 10, 100  # names of a certificate that are listed, and characters of each


def covers(presented: str, host: str) -> bool:
    """Whether `presented`, which may be `*.example.com`, is a name of `host`."""
    presented, host = _plain(presented), _plain(host)
    if presented.startswith("*."):
        label, _, rest = host.partition(".")
        # "*.com" would be half the world; no authority may issue it, and no policy means it.
        return bool(label) and rest == presented[2:] and "." in rest and not is_address(host)
    return presented == host and presented != ""


def fits(presented: str, wanted: str) -> bool:
    """Whether a certificate for `presented` fits `wanted`: a host name, or `.example.com` for every name below."""
    if wanted.startswith("."):
        name = _plain(presented).removeprefix("*.")
        below = name.endswith(_plain(wanted))
        return below or (presented.startswith("*.") and f".{name}" == _plain(wanted))
    return covers(presented, wanted)


def same_address(presented: str, wanted: str) -> bool:
    """Whether both are one IP address, however it is written."""
    try:
        return ip_address(presented) == ip_address(wanted)
    except ValueError:
        return False


def shown(presented: Sequence[str]) -> str:
    """The names of a certificate for people: a hostile host's may be long, many, and of any characters."""
    return ", ".join(printable(name[:_LONGEST].encode(errors="replace")) for name in presented[:_MOST]) or "no host"


def _plain(name: str) -> str:
    return name.lower().removesuffix(".")
