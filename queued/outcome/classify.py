"""classify — the meaning of a reply or a fault for the recipient

Owns: the tables that turn a host's reply into delivered, deferred or failed, and into its scope.
Guarantees: pure; every reply and every fault has an outcome; the unknown is deferred, so that
nothing bounces by accident; texts of peers are passed on, never branched on.
See: docs/reference/classification.md, made from these tables; RFC 5321 §4.2.1 (classes), §4.5.3.1.10 (552 to RCPT),
§3.8 (421); RFC 3463 §3 (X.4.1, X.4.2, X.5.0, X.7.5); Postfix smtp_trouble(3) and its smtp_skip_5xx_greeting.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from shared.mail.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from queued.smtp.transaction import Fault, FaultKind, TransactionResult
    from queued.waiting.watchdog import Phase
    from shared.mail.outcome import Kind, Scope
    from shared.mail.smtp_reply import Reply

# First digit of the code to what becomes of the recipient; any other digit: deferred.
KINDS: Final[dict[int, Kind]] = {2: "delivered", 4: "deferred", 5: "failed"}

# The scope of a reply that is not positive, by its phase.
SCOPES: Final[dict[Phase, Scope]] = {
    "connect": "destination",
    "greeting": "destination",
    "helo": "destination",
    "starttls": "destination",
    "auth": "destination",
    "mail": "message",
    "rcpt": "recipient",
    "data": "message",
    "body": "message",
    "dot": "message",
}

# Where the code alone would say too much; None stands for any phase. "bare": only without an enhanced code, or with one
# that says no more than the code (X.5.Z, a fault of protocol: RFC 3463 §3.6). "X.7": only with an enhanced code of that
# subject (security or policy: RFC 3463 §3.8).
EXCEPTIONS: Final[tuple[tuple[Phase | None, int, Kind, Scope, Literal["any", "bare", "X.7"], str], ...]] = (
    (None, 421, "deferred", "destination", "any", "the host is going away (RFC 5321 §3.8)"),
    (
        None,
        503,
        "deferred",
        "message",
        "bare",
        "protocol error: replies do not match commands; the outcome of the mail is unknown",
    ),
    ("mail", 503, "deferred", "us", "X.7", "we have to log in first, as 530"),
    ("rcpt", 503, "deferred", "us", "X.7", "we have to log in first, as 530"),
    (None, 530, "deferred", "us", "any", "we have to log in, or to begin TLS (RFC 4954 §6, RFC 3207 §4)"),
    (None, 534, "deferred", "us", "any", "our mechanism to log in is too weak (RFC 4954 §6)"),
    (None, 535, "deferred", "us", "any", "our credentials are refused (RFC 4954 §6)"),
    (None, 538, "deferred", "us", "any", "our mechanism to log in needs TLS (RFC 4954 §6)"),
    ("rcpt", 552, "deferred", "recipient", "bare", "means 452, too many recipients (RFC 5321 §4.5.3.1.10)"),
)

# The scope of a refusal in any phase, by the subject and detail of its enhanced code (RFC 3463 §3). The
# code still says whether it is permanent: 5.2.2, a full mailbox, bounces where a host says 552 or 550 with it. X.3.1, a
# full disk, is not here: hosts say it at MAIL of a message that is too large for what is left.
STATUSES: Final[dict[str, tuple[Scope, str]]] = {
    "1.7": ("message", "bad sender's mailbox address syntax"),
    "1.8": ("message", "bad sender's system address"),
    "2.1": ("recipient", "mailbox disabled"),
    "2.2": ("recipient", "mailbox full"),
    "3.2": ("destination", "system not accepting network messages"),
    "3.4": ("message", "message too big for system"),
    "4.1": ("destination", "no answer from host"),
    "4.2": ("destination", "bad connection"),
    "4.5": ("destination", "mail system congestion"),
    "7.20": ("message", "no passing DKIM signature (RFC 7372)"),
    "7.21": ("message", "no acceptable DKIM signature (RFC 7372)"),
    "7.22": ("message", "no valid author-matched DKIM signature (RFC 7372)"),
    "7.23": ("message", "SPF validation failed (RFC 7372)"),
    "7.24": ("message", "SPF validation error (RFC 7372)"),
    "7.25": ("destination", "reverse DNS validation failed (RFC 7372)"),
    "7.26": ("message", "several authentication checks failed (RFC 7372)"),
    "7.27": ("message", "the sender's domain takes no mail (RFC 7505)"),
    "7.28": ("destination", "mail flood detected"),
}

# Replies about our login and not about the mail, with any code: they never bounce mail.
OF_OUR_LOGIN: Final[dict[str, str]] = {
    "7.8": "authentication credentials invalid (RFC 4954)",
    "7.9": "authentication mechanism is too weak (RFC 4954)",
    "7.10": "encryption needed (RFC 5248)",
    "7.11": "encryption required for the authentication mechanism (RFC 4954)",
    "7.12": "a password transition is needed (RFC 4954)",
    "7.13": "user account disabled, once we are logged in (RFC 5248)",
    "7.14": "trust relationship required (RFC 5248)",
}

# Phases in which a 5yz speaks of this host, not of the mail: another may take it, or this one later.
BEFORE_MAIL: Final[frozenset[Phase]] = frozenset(
    {"connect", "greeting", "helo", "starttls", "auth"}  # smtp_skip_5xx_greeting
)

FAULT_STATUS: Final[dict[FaultKind, str]] = {
    "connect": "4.4.1",  # no answer from host
    "timeout": "4.4.2",  # bad connection
    "closed": "4.4.2",
    "protocol": "4.5.0",  # undefined protocol status
    "refused": "4.3.2",  # system not accepting network messages
    "tls": "4.7.5",  # cryptographic failure
    "login": "4.7.8",  # authentication credentials invalid
}
# Characters of a reply that are kept: Postfix logs about as much.
_LONGEST_TEXT: Final = 1000


def classify_reply(reply: Reply, phase: Phase) -> Outcome:
    """The outcome of a reply that decides about a recipient; `phase` is what it answered."""
    if phase == "dot" and 200 <= reply.code < 300:  # noqa: PLR2004 - what most replies are, past all exceptions
        return Outcome(
            "delivered", "recipient", reply.code, _status("delivered", reply.enhanced), _shortened(reply), phase=phase
        )
    kind: Kind = KINDS.get(reply.code // 100, "deferred")
    scope: Scope = "recipient" if kind == "delivered" else SCOPES[phase]
    if kind == "failed" and phase in BEFORE_MAIL:
        kind = "deferred"
    # Only the reply to the final dot can say that a message was taken (RFC 5321 §4.1.1.4).
    if kind == "delivered" and phase != "dot":
        kind, scope = "deferred", SCOPES[phase]
    if kind != "delivered" and phase not in BEFORE_MAIL and reply.enhanced is not None:
        scope, _ = STATUSES.get(reply.enhanced[2:], (scope, ""))
    subject = "5" if reply.enhanced is None else reply.enhanced.split(".")[1]
    said = "bare" if subject == "5" else f"X.{subject}"
    for where, code, meant, concerned, when, _ in EXCEPTIONS:
        if code == reply.code and where in {None, phase} and when in {said, "any"}:
            kind, scope = meant, concerned
    if kind != "delivered" and reply.enhanced is not None and reply.enhanced[2:] in OF_OUR_LOGIN:
        kind, scope = "deferred", "us"
    if phase in BEFORE_MAIL:
        scope = "destination"
    return Outcome(kind, scope, reply.code, _status(kind, reply.enhanced), _shortened(reply), phase=phase)


def classify_fault(fault: Fault) -> Outcome:
    """The outcome of a conversation that broke: always deferred."""
    of_host = fault.phase in BEFORE_MAIL or fault.kind in {"connect", "refused", "tls", "login"}
    # In mid-transaction it may be this very message that the host, or a firewall before it, chokes on.
    scope: Scope = "destination" if of_host else "message"
    code, enhanced = None, FAULT_STATUS[fault.kind]
    if fault.reply is not None:
        code = fault.reply.code
        if fault.kind != "login":  # what hosts say to a refused login differs, and doctor looks for one
            enhanced = _status("deferred", fault.reply.enhanced) or enhanced
    return Outcome("deferred", scope, code, enhanced, _cut(fault.text), uncertain=fault.uncertain, phase=fault.phase)


def classify(result: TransactionResult) -> tuple[Outcome, ...]:
    """One outcome for each recipient of a transaction, in their order."""
    return tuple(_undecided(result.fault) if reply is None else _of_reply(result, reply) for reply in result.recipients)


def _of_reply(result: TransactionResult, reply: Reply) -> Outcome:
    outcome = classify_reply(reply, _phase(result, reply))
    if result.finals and outcome.phase == "dot" and outcome.scope == SCOPES["dot"]:
        return replace(outcome, scope="recipient")  # RFC 2033 §4.2: each of them has its own
    return outcome


def wants_login(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The first of these that says, of everything we would send there, that we have to log in or to begin TLS.

    What is said so late as in answer to RCPT may be about that recipient alone.
    """
    return next((o for o in outcomes if o.phase == "mail" and o.scope == "us" and o.reply_code is not None), None)


def of_our_login(outcome: Outcome) -> bool:
    """Whether a host has refused our login, or misses one: no fault of the mail, and ours to correct."""
    if outcome.phase == "auth":
        return outcome.kind == "deferred" and outcome.enhanced == FAULT_STATUS["login"]
    return outcome.kind == "deferred" and outcome.scope == "us" and outcome.reply_code is not None


def _phase(result: TransactionResult, reply: Reply) -> Phase:
    """The phase of the deciding reply, found by object identity, since equal texts occur."""
    if reply is result.final or any(reply is final for final in result.finals):
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


def _shortened(reply: Reply) -> str:
    """The reply for logs and tables: a peer may say a megabyte, and says it once for each recipient."""
    return _cut(str(reply))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _status(kind: Kind, enhanced: str | None) -> str | None:
    """The peer's enhanced status, its class made to agree with what we do about it."""
    if enhanced is None:
        return None
    return {"delivered": "2", "deferred": "4", "failed": "5"}[kind] + enhanced[1:]
