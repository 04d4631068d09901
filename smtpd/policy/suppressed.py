"""suppressed — the check at RCPT whether an address is suppressed, and the addresses that take reports

Owns: the query of the table of suppressions, with its answers kept for a moment.
Guarantees: without `suppression.action` nothing is queried. Without an answer it raises ListUnavailable.
Raises: ListUnavailable.
See: shared/config/suppression.py; sql/schema/11_notice.sql; docs/how-to/deliver/suppression.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.config.smtpd.policy import ListSource
from shared.mail.suppression import target
from shared.postgres.queries import query
from smtpd import replies
from smtpd.policy.decision import Changes
from smtpd.policy.lists import ListUnavailable, QueryList

if TYPE_CHECKING:
    from shared.config.suppression import SuppressionAtRcpt
    from shared.mail.message import Address
    from smtpd.policy.lists import AskQuery

_HELD: Final = Changes(hold="suppressed", holdreason="the recipient is on the suppression list")


class Suppressed:
    """The suppression settings of one configuration."""

    def __init__(self, settings: SuppressionAtRcpt, ask: AskQuery | None) -> None:
        self._action = settings.action
        self._ask = ask
        self._accept = frozenset(settings.accept)
        # model_construct: the two durations are checked already.
        self._list = QueryList(
            ListSource.model_construct(
                id="suppression",
                file=None,
                query=query("suppression_listed"),
                keep=settings.keep,
                timeout=settings.timeout,
            )
        )

    def takes_reports(self, recipient: Address) -> bool:
        """Whether every client may send to this address, because it takes reports."""
        return bool(self._accept) and not self._accept.isdisjoint({target(str(recipient)), target(recipient.domain)})

    async def look(self, recipient: Address) -> str | Changes | None:
        """The reply for a suppressed recipient, the hold for one to be held, or None."""
        if self._action == "off" or self.takes_reports(recipient):
            return None
        if self._ask is None:
            raise ListUnavailable("suppression: no database to ask")
        if not await self._list.has(target(str(recipient)), self._ask):
            return None
        return _HELD if self._action == "hold" else replies.R550_SUPPRESSED
