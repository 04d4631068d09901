"""owed — which notification a result owes the sender, if any

Owns: the decision from NOTIFY, the outcome and what the host took on.
Guarantees: pure. Nobody is told of mail from the null sender, of a recipient with NOTIFY=NEVER, or of a delay where no
    `retry.notice` asks for it. Without NOTIFY senders hear of failures, and of delays where those are on.
See: RFC 3461 sections 4.1 (NOTIFY), 5.2.1 and 5.2.2 (hosts with and without DSN); Postfix delay_warning_time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from queued.values import Result

type Notice = Literal["failed", "delayed", "delivered", "relayed"]

_UNSAID: Final = ("FAILURE", "DELAY")  # RFC 3461 section 4.1: what holds is ours to say where NOTIFY is left out


def notice(result: Result) -> Notice | None:
    """What the sender is to be told of this result.

    `relayed` is all we can say of a success by SMTP: whether the next host delivers it, only that one knows. By LMTP it
    has. A host that took our NOTIFY over (`spoken.dsn`) says it itself.
    """
    claimed = result.claimed
    if claimed.sender is None or result.held is not None:
        return None
    dsn = claimed.metadata.get("_dsn")
    asked = dsn.get("notify", _UNSAID) if isinstance(dsn, dict) else _UNSAID
    if result.result == "success":
        if "SUCCESS" not in asked or result.spoken.dsn:
            return None
        return "delivered" if result.spoken.last else "relayed"
    if result.result is not None:
        return "failed" if "FAILURE" in asked else None
    return "delayed" if result.late is not None and "DELAY" in asked else None
