"""test_classify — the table from replies and faults to outcomes, line by line"""

from __future__ import annotations

from typing import get_args

import pytest

from queued.outcome.classify import classify, classify_fault, classify_reply
from queued.smtp.transaction import Fault, FaultKind, TransactionResult
from queued.waiting.watchdog import Phase
from shared.mail.smtp_reply import Reply, ReplyParser

PHASES: tuple[Phase, ...] = get_args(Phase.__value__)
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind.__value__)


@pytest.mark.parametrize(
    ("code", "enhanced", "phase", "kind", "scope", "status"),
    [
        (250, "2.0.0", "dot", "delivered", "recipient", "2.0.0"),
        (250, None, "dot", "delivered", "recipient", None),
        (250, "2.1.5", "rcpt", "deferred", "recipient", "4.1.5"),  # only the dot's reply delivers
        (450, "4.2.1", "rcpt", "deferred", "recipient", "4.2.1"),
        (451, None, "mail", "deferred", "message", None),
        (452, "4.3.1", "dot", "deferred", "message", "4.3.1"),
        (550, "5.1.1", "rcpt", "failed", "recipient", "5.1.1"),
        (550, "5.7.1", "mail", "failed", "message", "5.7.1"),
        (554, "5.7.1", "data", "failed", "message", "5.7.1"),
        (554, None, "dot", "failed", "message", None),
        (552, "5.3.4", "mail", "failed", "message", "5.3.4"),
        (552, "5.3.4", "dot", "failed", "message", "5.3.4"),
        (552, "5.5.3", "rcpt", "deferred", "recipient", "4.5.3"),  # RFC 5321 §4.5.3.1.10
        (552, None, "rcpt", "deferred", "recipient", None),
        (552, "5.2.2", "rcpt", "failed", "recipient", "5.2.2"),  # a full mailbox: the host says for good
        (552, "5.3.4", "rcpt", "failed", "message", "5.3.4"),  # too big for everybody there
        (550, "5.2.2", "dot", "failed", "recipient", "5.2.2"),
        (452, "4.2.2", "rcpt", "deferred", "recipient", "4.2.2"),
        (452, "4.5.3", "rcpt", "deferred", "recipient", "4.5.3"),
        (452, "4.3.1", "mail", "deferred", "message", "4.3.1"),  # a smaller one may fit
        (450, "4.3.2", "mail", "deferred", "destination", "4.3.2"),
        (450, "4.7.1", "rcpt", "deferred", "recipient", "4.7.1"),  # greylisting
        (550, "5.7.1", "rcpt", "failed", "recipient", "5.7.1"),  # greylisting is 4yz: a 5yz is believed
        (450, "4.7.28", "dot", "deferred", "destination", "4.7.28"),
        (550, "5.7.26", "dot", "failed", "message", "5.7.26"),
        (550, "5.1.8", "rcpt", "failed", "message", "5.1.8"),
        (503, None, "data", "deferred", "message", None),  # out of step, which says nothing of the mail
        (503, "5.5.1", "rcpt", "deferred", "message", "4.5.1"),
        (503, "5.7.0", "mail", "deferred", "us", "4.7.0"),  # log in first, as many hosts say it
        (503, "5.7.1", "rcpt", "deferred", "us", "4.7.1"),
        (503, "5.7.26", "mail", "deferred", "us", "4.7.26"),
        (503, "5.70.0", "mail", "failed", "message", "5.70.0"),
        (503, "5.7.0", "data", "failed", "message", "5.7.0"),  # refuses with a reason
        (503, "5.1.1", "rcpt", "failed", "recipient", "5.1.1"),
        (554, "5.5.1", "data", "failed", "message", "5.5.1"),
        # A reply that we lack a login or TLS is our own fault and bounces no mail (RFC 4954 §6, RFC 3207 §4).
        (530, "5.7.0", "mail", "deferred", "us", "4.7.0"),
        (530, None, "rcpt", "deferred", "us", None),
        (534, "5.7.9", "mail", "deferred", "us", "4.7.9"),
        (535, "5.7.8", "mail", "deferred", "us", "4.7.8"),
        (538, "5.7.11", "data", "deferred", "us", "4.7.11"),
        (550, "5.7.8", "rcpt", "deferred", "us", "4.7.8"),
        (525, "5.7.13", "mail", "deferred", "us", "4.7.13"),
        (454, "4.7.12", "mail", "deferred", "us", "4.7.12"),
        (554, "5.7.1", "rcpt", "failed", "recipient", "5.7.1"),  # relay access denied says too little
        (535, "5.7.8", "auth", "deferred", "destination", "4.7.8"),
        (421, "4.3.2", "greeting", "deferred", "destination", "4.3.2"),
        (554, "5.2.1", "helo", "deferred", "destination", "4.2.1"),
        (421, "4.7.0", "rcpt", "deferred", "destination", "4.7.0"),
        (421, None, "dot", "deferred", "destination", None),
        (554, "5.7.1", "greeting", "deferred", "destination", "4.7.1"),  # smtp_skip_5xx_greeting
        (550, None, "helo", "deferred", "destination", None),
        (354, None, "dot", "deferred", "message", None),  # not known: deferred
    ],
)
def test_each_reply_has_its_outcome(
    *, code: int, enhanced: str | None, phase: Phase, kind: str, scope: str, status: str | None
) -> None:
    outcome = classify_reply(Reply.make(code, enhanced, "said"), phase)
    assert (outcome.kind, outcome.scope, outcome.reply_code, outcome.enhanced) == (kind, scope, code, status)
    assert outcome.text == " ".join(filter(None, [str(code), enhanced, "said"]))
    assert (outcome.uncertain, outcome.phase) == (False, phase)


@pytest.mark.parametrize("raw", [b"451 5.7.1 wait\r\n", b"450 5.2.2 full\r\n", b"421 5.0.0 bye\r\n"])
def test_the_reply_code_wins_over_a_contradicting_enhanced_code(raw: bytes) -> None:
    [reply] = ReplyParser().feed(raw)
    outcome = classify_reply(reply, "rcpt")
    assert (outcome.kind, outcome.enhanced) == ("deferred", None)
    assert outcome.text.encode() == raw.strip()


@pytest.mark.parametrize("kind", FAULT_KINDS)
@pytest.mark.parametrize("phase", PHASES)
def test_every_fault_is_deferred(kind: FaultKind, phase: Phase) -> None:
    outcome = classify_fault(Fault(kind, phase, "why"))
    assert outcome.kind == "deferred"
    assert outcome.text == "why"
    assert outcome.reply_code is None
    assert outcome.enhanced is not None
    assert outcome.enhanced.startswith("4.")
    assert outcome.uncertain is (phase == "dot")
    before_mail = phase in {"connect", "greeting", "helo", "starttls", "auth"}
    if before_mail or kind in {"connect", "refused", "tls", "login"}:
        assert outcome.scope == "destination"
    else:
        assert outcome.scope == "message"


def test_every_code_of_every_phase_has_an_outcome() -> None:
    for code in range(200, 600):
        for phase in PHASES:
            outcome = classify_reply(Reply.make(code, f"{code // 100}.0.0", "x"), phase)
            assert outcome.kind != "failed" or code >= 500
            assert outcome.kind != "delivered" or (code < 300 and phase == "dot")


def test_a_refused_greeting_keeps_its_reply() -> None:
    reply = Reply.make(554, "5.7.1", "not you")
    outcome = classify_fault(Fault("refused", "greeting", "host refused to talk to us: 554", reply))
    assert (outcome.reply_code, outcome.enhanced) == (554, "4.7.1")


def test_each_recipient_of_a_transaction_gets_its_own_outcome() -> None:
    final = Reply.make(250, "2.0.0", "OK")
    full = Reply.make(552, None, "too many")
    nobody = Reply.make(550, "5.1.1", "nobody")
    result = TransactionResult(
        mail=Reply.make(250, None, "OK"),
        recipients=(final, full, nobody),
        data=Reply.make(354, None, "go"),
        final=final,
        fault=None,
    )
    assert [(o.kind, o.scope) for o in classify(result)] == [
        ("delivered", "recipient"),
        ("deferred", "recipient"),
        ("failed", "recipient"),
    ]


def test_the_same_reply_is_classified_by_its_phase() -> None:
    at_mail = Reply.make(552, "5.3.4", "too big")
    refused = TransactionResult(mail=at_mail, recipients=(at_mail, at_mail), data=None, final=None, fault=None)
    assert [o.kind for o in classify(refused)] == ["failed", "failed"]
    at_rcpt = Reply.make(552, None, "too big")
    other = TransactionResult(mail=Reply.make(250, None, ""), recipients=(at_rcpt,), data=None, final=None, fault=None)
    assert [o.kind for o in classify(other)] == ["deferred"]


def test_a_lost_final_reply_makes_only_accepted_recipients_uncertain() -> None:
    nobody = Reply.make(550, "5.1.1", "nobody")
    result = TransactionResult(
        mail=Reply.make(250, None, "OK"),
        recipients=(nobody, None),
        data=Reply.make(354, None, "go"),
        final=None,
        fault=Fault("closed", "dot", "peer hung up"),
    )
    assert [(o.kind, o.uncertain) for o in classify(result)] == [("failed", False), ("deferred", True)]


def test_an_empty_result_is_deferred_with_scope_us() -> None:
    (outcome,) = classify(TransactionResult(None, (None,), None, None, None))
    assert (outcome.kind, outcome.scope) == ("deferred", "us")


def test_an_overlong_reply_is_truncated() -> None:
    """Its text goes into a row for each recipient."""
    outcome = classify_reply(Reply(450, "4.7.1", ("\\xff" * 2000,) * 100), "rcpt")
    assert outcome.kind == "deferred"
    assert outcome.text.startswith("450 4.7.1 ")
    assert len(outcome.text) == 1001


def test_the_text_of_a_fault_is_bounded() -> None:
    """It may quote a reply, or the names of a certificate, and is kept for each recipient and each try."""
    outcome = classify_fault(Fault("protocol", "mail", "unexpected reply: " + "x" * 8000))
    assert outcome.text.startswith("unexpected reply: x")
    assert len(outcome.text) < 1100
