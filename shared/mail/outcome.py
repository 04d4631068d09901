"""outcome — the outcome of one try for one recipient

Owns: Outcome and the words for its kind and its scope.
Guarantees: pure, frozen values; a failed or delivered outcome is never uncertain.
Raises: ValueError for a combination that has no meaning.
See: the four error scopes of Postfix's smtp_trouble(3); RFC 3463 for `enhanced`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

type Kind = Literal["delivered", "deferred", "failed"]
type Scope = Literal["recipient", "message", "destination", "us"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a try, and how much of the mail it affects.

    kind: delivered (done), deferred (try again) or failed (bounce).
    scope: whom else it concerns: this recipient only; every recipient of the message at this host; every
        message for the destination; or us, when the trouble is our own.
    reply_code: the peer's three-digit code exactly as sent; None when there was no reply.
    enhanced: RFC 3463 status whose class agrees with `kind`; None when the peer gave none.
    text: one printable line saying why, for logs, `last_error` and bounces.
    uncertain: the content was sent but the answer to it was not heard: the recipient may have it already.
    phase: what was being answered or waited for, as queued.smtp.transaction has it; None where no host was asked.
    """

    kind: Kind
    scope: Scope
    reply_code: int | None
    enhanced: str | None
    text: str
    uncertain: bool = False
    phase: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Refuse combinations that cannot mean anything."""
        if self.uncertain and self.kind != "deferred":
            raise ValueError(f"an uncertain outcome is deferred, never {self.kind}")
        if self.enhanced is not None and self.enhanced[:1] != _CLASSES[self.kind]:
            raise ValueError(f"enhanced status {self.enhanced} does not say {self.kind}")

    @property
    def is_final(self) -> bool:
        """Whether the recipient is finished with: delivered or failed."""
        return self.kind != "deferred"


_CLASSES: dict[Kind, str] = {"delivered": "2", "deferred": "4", "failed": "5"}  # RFC 3463 §3.1
