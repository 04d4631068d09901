"""classification_reference — the page docs/reference/classification.md: the meaning of replies and faults

Owns: the page's prose; its tables are read from the code that decides.
Guarantees: each line of the tables is an outcome that queued.outcome.classify returned.
See: queued/outcome/classify.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from queued.outcome.classify import EXCEPTIONS, FAULT_STATUS, OF_OUR_LOGIN, STATUSES, classify_fault, classify_reply
from queued.smtp.transaction import Fault, FaultKind
from queued.watchdog import Phase
from shared.mail.smtp_reply import Reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shared.mail.outcome import Outcome

_INTRO = """\
# What a reply means

Each recipient of an attempt gets an outcome: *delivered*, *deferred* (tried again by the [retry
schedule](../explanation/retries.md)) or *failed* (given up; the sender is notified). Unknown replies and faults are
deferred. An outcome has a scope, the mail that it concerns: this *recipient*, every recipient of the *message* at
that host, or the *destination* with all its mail; trouble of our own has the scope *us*, and never bounces mail. Only
scope *destination*, and trouble with our login, lowers the concurrency of a destination. Operators can override these
tables by [rules](../how-to/react-to-replies.md).

## Replies

The class of the code decides about the recipient; the answered command decides about the scope. Only the reply to the
final dot delivers."""

_STATUSES = """\
## Enhanced codes

The code decides: an enhanced code of another class is an error of the host and is ignored, so `451 5.7.1` is deferred.
One of the same class decides the scope of a refusal, where it is one of these (X is 4 or 5); before MAIL the scope is
always the destination. They do not decide about the recipient: `5.2.2`, a full mailbox, has failed, with 552 as with
550, since a host that means a temporary refusal says 4. To try such mail for longer, write a
[rule](../how-to/react-to-replies.md)."""

_LOGINS = """\
These concern our login, not the mail: whatever the code, mail is deferred, with scope *us*, and no rule bounces it.
After such a reply to our login, or to MAIL, the destination is [left alone for a
while](../how-to/log-in-to-a-relay.md)."""

_FAULTS = """\
## Faults

Mail is always deferred when a conversation breaks. If it broke while we waited for the reply to the final dot, the
host may have the message: the attempt is *uncertain*, and the message is sent again with the same envelope and
content."""

_NEXT = """\
## Too many recipients

`452`, or `552` without an enhanced code, in answer to RCPT, while the host accepts the message for others: the refused
recipients are sent in a next transaction over the same connection at once (RFC 5321 section 4.5.3.1.10), as often as
the host accepts at least one more. The rest waits for the retry."""


def page() -> str:
    """The page."""
    parts = [
        _INTRO,
        _table(("what was answered", "4yz", "5yz"), _by_phase()),
        "Some codes say more, or less (*bare*: without an enhanced code, or with X.5.Z):",
        _table(("what was answered", "code", "outcome", "because"), _exceptions()),
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
        yield (phase, *(_told(classify_reply(Reply(code, None, ("",)), phase)) for code in (450, 550)))


_WHEN: Final = {"any": "", "bare": " bare", "X.7": " with X.7.Z"}


def _exceptions() -> Iterator[tuple[str, ...]]:
    for phase, code, kind, scope, when, why in EXCEPTIONS:
        yield phase or "anything", str(code) + _WHEN[when], f"{kind}, {scope}", why


def _by_fault() -> Iterator[tuple[str, ...]]:
    for kind in get_args(FaultKind.__value__):
        early = classify_fault(Fault(kind, "greeting", ""))
        late = classify_fault(Fault(kind, "dot", ""))
        yield kind, _told(early), _told(late) + (", uncertain after the dot" * late.uncertain), FAULT_STATUS[kind]


def _told(outcome: Outcome) -> str:
    return f"{outcome.kind}, {outcome.scope}" if outcome.kind != "delivered" else outcome.kind


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
