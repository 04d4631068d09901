"""classification_reference — the page docs/reference/classification.md: the meaning of replies and faults

Owns: the page's prose; its tables are read from the code that decides.
Guarantees: each line of the tables is an outcome that queued.outcome.classify returned.
See: queued/outcome/classify.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from queued.outcome.classify import EXCEPTIONS, FAULT_STATUS, OF_OUR_LOGIN, STATUSES, classify_fault, classify_reply
from queued.smtp.transaction import Fault, FaultKind
from queued.waiting.watchdog import Phase
from shared.mail.smtp_reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.mail.outcome import Outcome

_INTRO = """\
# What a reply means

Each recipient of an attempt gets an outcome: *delivered*, *deferred* (tried again by the [retry
schedule](../explanation/retries.md)) or *failed* (given up; the sender is notified). Unknown replies and faults are
deferred. An outcome has a scope, the mail that it concerns: this *recipient*, every recipient of the *message* at
that host, or the *destination* with all its mail. Our own faults have the scope *us* and never bounce mail. Only
the scope *destination*, and faults of our login, lower the concurrency of a destination. Operators can override these
tables with [rules](../how-to/deliver/react-to-replies.md).

## Replies

The class of the code determines the outcome; the command that was answered determines the scope. Only the reply to the
final dot delivers."""

_STATUSES = """\
## Enhanced codes

The code has precedence: an enhanced code of another class is an error of the host and is ignored, so `451 5.7.1` is
deferred. An enhanced code of the same class sets the scope of a refusal if it is in this table (X is 4 or 5); before
MAIL the scope is always the destination. It does not change the outcome: `5.2.2`, a full mailbox, is a failure with 552
as with 550, because a host that means a temporary refusal replies 4yz. To retry such mail for longer, write a
[rule](../how-to/deliver/react-to-replies.md)."""

_LOGINS = """\
These concern our login, not the mail: with any code, mail is deferred with scope *us*, and no rule bounces it.
After such a reply to our login, or to MAIL, we [pause](../how-to/deliver/log-in-to-a-relay.md) deliveries to the
destination."""

_FAULTS = """\
## Faults

Mail is always deferred when a session breaks. If it broke while we waited for the reply to the final dot, the
host may have the message: the attempt is *uncertain*, and the message is sent again with the same envelope and
content."""

_NEXT = """\
## Too many recipients

If a host replies to RCPT with `452`, or with `552` without an enhanced code, but accepts the message for other
recipients, the refused recipients follow at once in another transaction over the same connection (RFC 5321 section
4.5.3.1.10). This repeats while the host accepts at least one more recipient. The rest waits for the retry."""


def page() -> str:
    """The page."""
    parts = [
        _INTRO,
        _table(("reply to", "4yz", "5yz"), _by_phase()),
        "Exceptions (*bare*: without an enhanced code, or with X.5.Z):",
        _table(("reply to", "code", "outcome", "reason"), _exceptions()),
        _NEXT,
        _STATUSES,
        _table(("enhanced code", "scope", "meaning"), ((f"X.{s}", scope, why) for s, (scope, why) in STATUSES.items())),
        _LOGINS,
        _table(("enhanced code", "meaning"), ((f"X.{s}", why) for s, why in OF_OUR_LOGIN.items())),
        _FAULTS,
        _table(("fault", "before MAIL", "later", "our enhanced code"), _by_fault()),
    ]
    return "\n\n".join(parts) + "\n"


def _by_phase() -> Iterator[tuple[str, ...]]:
    for phase in get_args(Phase.__value__):
        yield (phase, *(_written(classify_reply(Reply(code, None, ("",)), phase)) for code in (450, 550)))


_WHEN: Final = {"any": "", "bare": " bare", "X.7": " with X.7.Z"}


def _exceptions() -> Iterator[tuple[str, ...]]:
    for phase, code, kind, scope, when, why in EXCEPTIONS:
        yield phase or "anything", str(code) + _WHEN[when], f"{kind}, {scope}", why


def _by_fault() -> Iterator[tuple[str, ...]]:
    for kind in get_args(FaultKind.__value__):
        early = classify_fault(Fault(kind, "greeting", ""))
        late = classify_fault(Fault(kind, "dot", ""))
        yield kind, _written(early), _written(late) + (", uncertain after the dot" * late.uncertain), FAULT_STATUS[kind]


def _written(outcome: Outcome) -> str:
    return f"{outcome.kind}, {outcome.scope}" if outcome.kind != "delivered" else outcome.kind


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
