"""mta_sts — a domain's MTA-STS record and policy

Owns: Policy, and parsing it and the TXT record that announces it.
Guarantees: pure. Text that is not a valid policy is None; unknown fields are ignored (RFC 8461 section 3.2).
See: RFC 8461 sections 3.1 (record), 3.2 (policy) and 4.1 (matching).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from queued.tls.names import covers

if TYPE_CHECKING:
    from collections.abc import Iterable

type PolicyMode = Literal["enforce", "testing", "none"]

LONGEST: Final = 65536  # octets of a policy; RFC 8461 section 3.3 suggests this limit
_MOST_AGE: Final = 31_557_600  # seconds; RFC 8461 section 3.2
_MOST_HOSTS: Final = 100  # patterns; the largest honest policies have about thirty
_MOST_OCTETS: Final = 4096  # of all patterns together: ten thousand policies are kept
_VERSION = re.compile(r"v=STSv1[ \t]*;")
_RECORD = re.compile(r"v=STSv1[ \t]*;(?:[^;]*;)*?[ \t]*id[ \t]*=[ \t]*([A-Za-z0-9]{1,32})[ \t]*(?:;.*)?", re.DOTALL)
# The blanks around a value are stripped afterwards: a pattern for them takes time quadratic in their number.
_FIELD = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,31})[ \t]*:(.*)")
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_DIGITS = re.compile(r"[0-9]{1,10}")


class StsPolicy(NamedTuple):
    """A policy: what to do, for how long (seconds), and the hosts it names, `*.example.com` being one label more."""

    mode: PolicyMode
    max_age: int
    hosts: tuple[str, ...]


def read_record(texts: Iterable[str]) -> str | None:
    """The id that the TXT records of _mta-sts announce; None for none, and for more than one (RFC 8461 section 3.1)."""
    announced = [text for text in texts if _VERSION.match(text)]
    if len(announced) != 1:
        return None
    match = _RECORD.fullmatch(announced[0])
    return match[1] if match else None


def read_policy(octets: bytes) -> StsPolicy | None:
    """The policy in the file a domain publishes; None when it is none (RFC 8461 section 3.2)."""
    if len(octets) > LONGEST:
        return None
    fields: dict[str, str] = {}
    hosts: list[str] = []
    for line in octets.decode("utf-8", "replace").replace("\r\n", "\n").split("\n"):
        match = _FIELD.fullmatch(line)
        if match is None:
            if line.strip():
                return None
        elif match[1] == "mx":
            hosts.append(match[2].strip(" \t").lower().removesuffix("."))
        else:
            fields.setdefault(match[1], match[2].strip(" \t"))  # the first of several counts
    mode, age = fields.get("mode"), fields.get("max_age", "")
    if fields.get("version") != "STSv1" or mode not in {"enforce", "testing", "none"} or not _DIGITS.fullmatch(age):
        return None
    within = len(hosts) <= _MOST_HOSTS and sum(map(len, hosts)) <= _MOST_OCTETS
    if int(age) > _MOST_AGE or not within or not all(map(_HOST.fullmatch, hosts)):
        return None
    if mode != "none" and not hosts:
        return None
    return StsPolicy(cast("PolicyMode", mode), int(age), tuple(hosts))


def names_host(policy: StsPolicy, host: str) -> bool:
    """Whether a mail exchanger of this name is one of the policy's (RFC 8461 section 4.1)."""
    return any(covers(pattern, host) for pattern in policy.hosts)
