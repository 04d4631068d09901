"""test_proof — what lines of logs and records prove about deliveries"""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from operate.recovery.proof import Proofs, read

MESSAGE = UUID("01997f3c-5d2e-7a41-b6ce-1f0a9d3b7e55")
TO = "bob@example.com"
EVENT = {"id": "evt_1", "type": "delivered", "data": {"id": 4711, "message": str(MESSAGE), "recipient": TO}}
OURS = f'2026-11-25T08:00:00Z INFO result.delivered id={MESSAGE} to={TO} transport=default reply="250 2.0.0 Ok"'
POSTFIX = (
    "Nov 25 08:00:00 mx postfix/smtpd[7]: 4F1: client=app[192.0.2.1]",
    "Nov 25 08:00:00 mx postfix/cleanup[8]: 4F1: message-id=<1234@example.com>",
    f"Nov 25 08:00:01 mx postfix/smtp[9]: 4F1: to=<{TO}>, relay=next[192.0.2.2]:25, delay=1, status=deferred (451)",
    f"Nov 25 08:05:01 mx postfix/smtp[9]: 4F1: to=<{TO}>, relay=next[192.0.2.2]:25, delay=301, status=sent (250)",
)
ACCEPTED = f"2026-11-25T08:00:00Z INFO spool.committed id={MESSAGE} sender=a@example.com recipients=1"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (OURS, MESSAGE),
        (f"Nov 25 08:00:00 host queued[12]: {OURS}", MESSAGE),
        (f"2026-11-25T08:00:00+0000 host queued[12]: {OURS}", MESSAGE),
        (f"queued-1  | {OURS}", MESSAGE),
        (f"2026-11-25T08:00:00.123456789Z stdout F {OURS}", MESSAGE),
        (f"[pod/mail-0/queued] {OURS}", MESSAGE),
        (json.dumps({"message": str(MESSAGE), "recipients": [TO], "messageid": "<1234@example.com>"}), MESSAGE),
        (json.dumps({"message": None, "recipients": [TO], "messageid": "<1234@example.com>"}), "1234@example.com"),
        (json.dumps({"msgid": "1234@example.com", "recipient": TO}), "1234@example.com"),
        (f"<1234@example.com> <{TO}>", "1234@example.com"),
        (f"{MESSAGE} bob@EXAMPLE.com", MESSAGE),
    ],
)
def test_each_form_proves_one_delivery(line: str, name: UUID | str) -> None:
    assert read([line]).delivered == {(name, TO): 1}


@pytest.mark.parametrize("text", [OURS, f"] {OURS}", ACCEPTED, *POSTFIX, f"]: {OURS}", f"x[1]: {OURS}"])
@pytest.mark.parametrize(
    "line",
    [
        f'2026-11-25T08:00:00.123Z info result.failed id={UUID(int=1)} to=eve@example.net reply="550 {{text}}"',
        f"Nov 25 08:00:00 host queued[12]: 2026-11-25T08:00:00.123Z info result.failed id={UUID(int=1)} reply={{text}}",
        "Nov 25 08:00:00 mx postfix/smtpd[7]: improper command pipelining after EHLO from eve[192.0.2.9]: {text}",
        "Nov 25 08:00:00 mx postfix/cleanup[8]: 4F1: info: header Subject: {text} from eve[192.0.2.9]",
    ],
)
def test_the_words_of_a_peer_prove_nothing(line: str, text: str) -> None:
    # As if the other line of Postfix were there already.
    assert not read([POSTFIX[1].replace("4F1", "5A2"), line.format(text=text), POSTFIX[2]])


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"a":' * 100_000,
        "{",
        "[1]",
        "one two",
        "one word too many",
        OURS.replace("delivered", "deferred"),
        OURS.replace("to=bob@example.com ", ""),
        json.dumps({**EVENT, "type": "failed"}),
        json.dumps({**EVENT, "data": {"id": 4711}}),
        json.dumps({"recipients": [TO]}),
        json.dumps({"message": str(MESSAGE), "recipients": [7, None, "no address"]}),
    ],
)
def test_other_lines_prove_nothing(line: str) -> None:
    assert not read([line])


def test_webhooks_name_the_recipient_by_number_and_message_whether_single_or_in_a_batch() -> None:
    batch = {"id": "b", "type": "batch", "data": [EVENT, {**EVENT, "type": "deferred"}]}
    for line in (EVENT, batch):
        proofs = read([json.dumps(line)])
        assert (proofs.exactly, proofs.delivered) == ({(4711, MESSAGE)}, {})


def test_what_postfix_has_in_its_queue_is_delivered_once_however_often_it_tries() -> None:
    assert read(POSTFIX).delivered == {("1234@example.com", TO): 1}
    assert not read(POSTFIX[2:])  # without the line that names the message
    alias = POSTFIX[3].replace(f"<{TO}>", f"<robert@example.net>, orig_to=<{TO}>")
    assert read([POSTFIX[1], alias]).delivered == {("1234@example.com", TO): 1}


def test_two_sources_of_one_delivery_count_it_once_and_one_source_of_two_counts_both() -> None:
    both = Proofs()
    both.add(read([OURS, OURS]))
    both.add(read([f"{MESSAGE} {TO}"]))
    assert both.delivered == {(MESSAGE, TO): 2}


def test_accepted_messages_are_read_from_the_log_of_smtpd() -> None:
    assert read([ACCEPTED]).accepted == {MESSAGE}
