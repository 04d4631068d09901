"""zone — the DNS records that a host and its domains have to publish, as lines of a zone file

Guarantees: pure.
See: RFC 7208 section 3.2 (SPF), RFC 6376 section 3.6.1 (DKIM), RFC 7489 section 6.1 (DMARC).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def lines(hostname: str, domains: Sequence[str], dkim: Iterable[str], *, direct: bool) -> list[str]:
    """What to publish; comments say what only a person knows. `dkim`: the lines of the keys."""
    found = [f"; DNS records of {hostname}. Publish them, then: pillarbox doctor"]
    if direct:
        found += [
            f"; The address from which mail leaves: its reverse record (PTR) must be {hostname}, and",
            f"; {hostname}. IN A must be that address. The provider of the address sets the PTR.",
        ]
    if domains:
        found.append(
            "; Who may send for a domain. A domain that has an SPF record gets these words in it, not a second one."
        )
        found += [
            f'{domain}. IN TXT "v=spf1 a:{hostname} ~all"'
            if direct
            else f'; {domain}. IN TXT "v=spf1 include:NAME ~all", with the NAME that your smart host gives'
            for domain in domains
        ]
        found += ["; The public keys by which receivers verify our signatures.", *dkim]
        found.append("; What receivers do with mail that fails both; p=none only reports, to begin with.")
        found += [f'_dmarc.{domain}. IN TXT "v=DMARC1; p=none; rua=mailto:postmaster@{domain}"' for domain in domains]
    return found
