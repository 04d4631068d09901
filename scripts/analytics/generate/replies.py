"""replies — synthetic replies of peers, in the wording of several providers

Owns: the table of replies by provider and outcome, each with a place for a different identifier every time.
Guarantees: one code, one enhanced code and one text for each try; the wordings imitate real ones.
See: RFC 5321 section 4.2; RFC 3463.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from scripts.analytics.generate.text import joined

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Reply(NamedTuple):
    """A code, an enhanced code, and the text; # is replaced by an identifier."""

    code: int
    enhanced: str
    text: str


#: By provider: the reply to an accepted message.
DELIVERED: Final = (
    Reply(250, "2.0.0", "OK # - gsmtp"),
    Reply(250, "2.6.0", "<#@mail.example> [InternalId=#] Queued mail for delivery"),
    Reply(250, "2.0.0", "Ok: queued as #"),
    Reply(250, "2.0.0", "ok dirdel # accepted"),
    Reply(250, "2.1.5", "#: Message accepted for delivery"),
    Reply(250, "2.0.0", "OK id=#"),
)
#: By provider: three deferrals, the commonest first.
DEFERRED: Final = (
    (
        Reply(
            421, "4.7.28", "Our system has detected an unusual rate of mail from your IP address. Try later. # - gsmtp"
        ),
        Reply(452, "4.2.2", "The recipient's inbox is out of storage space. # - gsmtp"),
        Reply(450, "4.2.1", "The user you are trying to contact is receiving mail too quickly. #"),
    ),
    (
        Reply(451, "4.7.500", "Server busy. Please try again later from [198.51.100.1]. (S77714) [#.prod.example]"),
        Reply(421, "4.3.2", "The maximum number of concurrent connections has exceeded a limit [#.prod.example]"),
        Reply(452, "4.5.3", "Too many recipients [#.prod.example]"),
    ),
    (
        Reply(450, "4.2.0", "Recipient address rejected: Greylisted, see https://postgrey.example/help/#.html"),
        Reply(450, "4.1.8", "Sender address rejected: Domain not found; id=#"),
        Reply(451, "4.3.0", "Temporary lookup failure; id=#"),
    ),
    (
        Reply(421, "4.7.0", "[TSS04] Messages from 198.51.100.2 temporarily deferred due to user complaints - #"),
        Reply(451, "4.3.2", "Resources temporarily unavailable. Please try again later [#]"),
        Reply(421, "4.4.2", "Connection timed out #"),
    ),
    (
        Reply(451, "4.7.1", "#: Client host rejected: too many connections from your network"),
        Reply(452, "4.3.1", "#: Insufficient system storage"),
        Reply(450, "4.2.2", "#: mailbox full"),
    ),
    (
        Reply(451, "4.7.1", "Temporary local problem - please try later id=#"),
        Reply(421, "4.3.0", "lost connection while receiving the initial greeting id=#"),
        Reply(450, "4.7.1", "Service unavailable; client host blocked using list.example; id=#"),
    ),
)
#: By provider: three permanent refusals.
FAILED: Final = (
    (
        Reply(550, "5.1.1", "The email account that you tried to reach does not exist. # - gsmtp"),
        Reply(550, "5.7.26", "This message does not pass authentication checks. # - gsmtp"),
        Reply(552, "5.2.3", "Your message exceeded size limits. # - gsmtp"),
    ),
    (
        Reply(550, "5.4.1", "Recipient address rejected: Access denied. [#.prod.example]"),
        Reply(550, "5.1.10", "RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup [#]"),
        Reply(550, "5.7.606", "Access denied, banned sending IP [198.51.100.1] [#]"),
    ),
    (
        Reply(550, "5.1.1", "Recipient address rejected: User unknown in virtual mailbox table; id=#"),
        Reply(554, "5.7.1", "Relay access denied; id=#"),
        Reply(554, "5.7.1", "Service unavailable; Client host [198.51.100.3] blocked; id=#"),
    ),
    (
        Reply(554, "5.7.9", "Message not accepted for policy reasons. #"),
        Reply(550, "5.1.1", "Requested action not taken: mailbox unavailable #"),
        Reply(554, "5.0.0", "dd This user doesn't have an account here [#]"),
    ),
    (
        Reply(550, "5.1.1", "#: user unknown"),
        Reply(550, "5.2.1", "#: mailbox disabled, not accepting messages"),
        Reply(550, "5.7.1", "#: rejected as spam"),
    ),
    (
        Reply(550, "5.1.1", "unrouteable address id=#"),
        Reply(550, "5.7.1", "This message was classified as SPAM id=#"),
        Reply(550, "5.7.23", "SPF validation failed id=#"),
    ),
)
PROVIDERS: Final = range(len(DELIVERED))
_WAYS: Final = 3
#: delivered, deferred, failed, each by provider and way: a reply is at (outcome * providers + provider) * 3 + way.
_ALL: Final = [
    reply
    for table in (tuple((r, r, r) for r in DELIVERED), DEFERRED, FAILED)
    for provider in table
    for reply in provider
]


def replies(
    rng: np.random.Generator, outcome: NDArray[Any], provider: NDArray[Any], identifier: pa.Array
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Codes, enhanced codes and texts; outcome 3 (no reply) gets those of a delivery, which the caller clears."""
    way = rng.choice(_WAYS, len(outcome), p=(0.7, 0.2, 0.1))
    which = pa.array(
        (np.where(outcome == _WAYS, 0, outcome).astype(np.int32) * len(PROVIDERS) + provider) * _WAYS + way
    )
    before, _, after = zip(*(reply.text.partition("#") for reply in _ALL), strict=True)
    code = pa.array([reply.code for reply in _ALL], pa.int32()).take(which)
    enhanced = pa.array([reply.enhanced for reply in _ALL]).take(which)
    said = pa.array([f"{r.code} {r.enhanced} {start}" for r, start in zip(_ALL, before, strict=True)]).take(which)
    rest = pa.array([end.replace("#", "0") for end in after]).take(which)
    return code, enhanced, joined(said, identifier, rest)
