"""dns_answer — an answer of DNS, as the decisions about hosts and TLS read it

Owns: Answer, and Tlsa, the one record that is more than a name or an address.
Guarantees: pure.
See: RFC 6698 section 2.1; RFC 7672 section 3.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

_DANE_TA, _DANE_EE = 2, 3  # RFC 7672 section 3.1: the usages that mean something between mail servers
_SELECTORS: Final = (0, 1)  # RFC 6698 section 2.1.2
_DIGESTS: Final = {1: 32, 2: 64}  # RFC 6698 section 2.1.3: octets of SHA-256 and SHA-512; 0 is no digest


@dataclass(frozen=True, slots=True)
class Answer[Record]:
    """An answer of DNS.

    state: found (there are records), nothing (the name has none of that type), unknown (there is no such name), failed
    (no answer that counts, for the reason `text`). secure: a trusted name server has validated all of it by DNSSEC.
    canonical: the name whose records they are, in lower case, where CNAMEs led away from what was asked about; else "".
    """

    state: Literal["found", "nothing", "unknown", "failed"]
    records: tuple[Record, ...] = ()
    text: str = ""
    secure: bool = False
    canonical: str = ""


class Tlsa(NamedTuple):
    """One TLSA record (RFC 6698 section 2.1)."""

    usage: int
    selector: int
    matching: int
    association: bytes

    @property
    def usable(self) -> bool:
        """Whether we know what it asks for; RFC 7672 section 3.1.3 leaves usages 0 and 1 out."""
        if self.usage not in {_DANE_TA, _DANE_EE} or self.selector not in _SELECTORS:
            return False
        return bool(self.association) if self.matching == 0 else _DIGESTS.get(self.matching) == len(self.association)
