"""marks — the names of the analyses for missing and impossible values

Owns: the names; the numbers of refusals or deferrals that are enough.
Guarantees: none of them can be a domain, a source address or a partition id.
"""

from __future__ import annotations

from typing import Final

UNUSABLE: Final = "(unusable)"  # not a domain: too long, empty, or with characters that no name has
NULL_SENDER: Final = "(null sender)"
UNKNOWN: Final = "(unknown)"  # written by a worker that did not know the column yet

#: Refusals without a word about the address that it takes to list it all the same.
ENOUGH: Final = 3
#: Attempts deferred for our pace that it takes to call an hour slowed.
FEWEST: Final = 5
#: Octets of a local part: RFC 5321 section 4.5.3.1.1.
LONGEST_LOCAL: Final = 64
