"""marks — the names of the analyses for missing and impossible values

Owns: the names; the thresholds for refusals and deferrals.
Guarantees: none of them can be a domain, a source address or a partition id.
"""

from __future__ import annotations

from typing import Final

UNUSABLE: Final = "(unusable)"  # not a domain: too long, empty, or with invalid characters
NULL_SENDER: Final = "(null sender)"
NO_CAMPAIGN: Final = "(none)"  # the application gave no jobid
NO_HOST: Final = "(no host name)"  # no connection, or a host that is named by its address
UNKNOWN: Final = "(unknown)"  # written by an older worker, which did not know the column

#: Refusals after which an address is listed although none of them mentions the address.
ENOUGH: Final = 3
#: Attempts deferred because of our rate from which an hour counts as slowed.
FEWEST: Final = 5
#: Octets of a local part: RFC 5321 section 4.5.3.1.1.
LONGEST_LOCAL: Final = 64
