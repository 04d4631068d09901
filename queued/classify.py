"""classify — what a reply or a fault means for the recipient

Owns: the one table that turns what a host said into delivered, deferred or failed.
Called by: deliver, with the result of a transaction or the fault of a connection.
Guarantees: pure; every reply and every fault has an outcome; what is not known is deferred, so that
nothing bounces by accident; texts of peers are passed on, never branched on.
See: RFC 5321 §4.2.1 (classes), §4.5.3.1.10 (552 to RCPT), §3.8 (421); RFC 3463 §3 (X.4.1, X.4.2, X.5.0,
X.7.5); Postfix smtp_trouble(3) and its smtp_skip_5xx_greeting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shared.outcome import Outcome

if TYPE_CHECKING:
    from queued.transaction import Fault, FaultKind, Phase, TransactionResult
    from shared.outcome import Kind, Scope
    from shared.smtp_reply import Reply

# First digit of the code to what becomes of the recipient; any other digit: deferred.
_KINDS: Final[dict[int, Kind]] = {2: "delivered", 4: "deferred", 5: "failed"}

# Whom a reply that is not positive concerns, by what was being answered.
_SCOPES: Final[dict[Phase, Scope]] = {
    "connect": "destination",
    "greeting": "destination",
    "helo": "destination",
    "mail": "message",
    "rcpt": "recipient",
    "data": "message",
    "body": "message",
    "dot": "message",
}

# Where the code alone would say too much; None stands for any phase.
_EXCEPTIONS: Final[dict[tuple[Phase | None, int], tuple[Kind, Scope]]] = {
    (None, 421): ("deferred", "destination"),  # RFC 5321 §3.8: the whole host is going away
    ("rcpt", 552): ("deferred", "recipient"),  # RFC 5321 §4.5.3.1.10: means 452, too many recipients
}

# Phases in which a 5yz speaks of this host, not of the mail: another may take it, or this one later.
_BEFORE_MAIL: Final[frozenset[Phase]] = frozenset({"connect", "greeting", "helo"})  # smtp_skip_5xx_greeting

_FAULT_STATUS: Final[dict[FaultKind, str]] = {
    "connect": "4.4.1",  # no answer from host
    "timeout": "4.4.2",  # bad connection
    "closed": "4.4.2",
    "protocol": "4.5.0",  # undefined protocol status
    "refused": "4.3.2",  # system not accepting network messages
    "tls": "4.7.5",  # cryptographic failure
}
# Characters of a reply that are kept: Postfix logs about as much.
_LONGEST_TEXT: Final = 1000


def classify_reply(reply: Reply, phase: Phase) -> Outcome:
    """The outcome of a reply that decides about a recipient; `phase` is what it answered."""
    kind: Kind = _KINDS.get(reply.code // 100, "deferred")
    scope: Scope = "recipient" if kind == "delivered" else _SCOPES[phase]
    if kind == "failed" and phase in _BEFORE_MAIL:
        kind = "deferred"
    # Only the reply to the final dot can say that a message was taken (RFC 5321 §4.1.1.4).
    if kind == "delivered" and phase != "dot":
        kind, scope = "deferred", _SCOPES[phase]
    kind, scope = _EXCEPTIONS.get((None, reply.code), (kind, scope))
    kind, scope = _EXCEPTIONS.get((phase, reply.code), (kind, scope))
    return Outcome(kind, scope, reply.code, _status(kind, reply.enhanced), _told(reply))


def classify_fault(fault: Fault) -> Outcome:
    """The outcome of a conversation that broke: always deferred."""
    of_host = fault.phase in _BEFORE_MAIL or fault.kind in {"connect", "refused", "tls"}
    # In mid-transaction it may be this very message that the host, or a firewall before it, chokes on.
    scope: Scope = "destination" if of_host else "message"
    code, enhanced = None, _FAULT_STATUS[fault.kind]
    if fault.reply is not None:
        code, enhanced = fault.reply.code, _status("deferred", fault.reply.enhanced) or enhanced
    return Outcome("deferred", scope, code, enhanced, fault.text, uncertain=fault.uncertain)


def classify(result: TransactionResult) -> tuple[Outcome, ...]:
    """One outcome for each recipient of a transaction, in their order."""
    return tuple(
        _undecided(result.fault) if reply is None else classify_reply(reply, _phase(result, reply))
        for reply in result.recipients
    )


def _phase(result: TransactionResult, reply: Reply) -> Phase:
    """What the deciding reply answered: the very object tells, since equal texts occur."""
    if reply is result.final:
        return "dot"
    if reply is result.data:
        return "data"
    if reply is result.mail:
        return "mail"
    return "rcpt"


def _undecided(fault: Fault | None) -> Outcome:
    """A recipient without a reply of its own."""
    if fault is None:
        return Outcome("deferred", "us", None, "4.3.0", "no reply and no fault was recorded")
    return classify_fault(fault)


def _told(reply: Reply) -> str:
    """The reply for logs and tables: a peer may say a megabyte, and says it once for each recipient."""
    text = str(reply)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _status(kind: Kind, enhanced: str | None) -> str | None:
    """The peer's enhanced status, its class made to agree with what we do about it."""
    if enhanced is None:
        return None
    return {"delivered": "2", "deferred": "4", "failed": "5"}[kind] + enhanced[1:]
