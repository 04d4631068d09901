"""aside — attempts stalled while their host has content of ours, which do not count against the worker's limit

Owns: the bound of it, in recipients and in octets.
Guarantees: no await, no clock. A quarter of `claim.inflight` and of `claim.maxbytes` at most, or one attempt that is
    larger than that. What is set aside stays in flight: leases are put off and results recorded as ever, for such
    an attempt cannot be cut off without the danger of a duplicate.
See: RFC 1047 (why it matters whether the final dot was out); docs/explanation/admission.md.
"""

from __future__ import annotations


class Aside:
    """Those set aside, until their attempts end."""

    def __init__(self, inflight: int, maxbytes: int) -> None:
        self._most, self._most_octets = -(-inflight // 4), maxbytes // 4
        self.recipients = self._octets = 0

    def take(self, recipients: int, octets: int) -> bool:
        """Set an attempt aside, if there is room for it."""
        if self.recipients and (self.recipients + recipients > self._most or self._octets + octets > self._most_octets):
            return False
        self.recipients += recipients
        self._octets += octets
        return True

    def leave(self, recipients: int, octets: int) -> None:
        """The attempt has ended."""
        self.recipients -= recipients
        self._octets -= octets
