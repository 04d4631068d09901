"""test_found_by — what is kept of a Message-ID and a subject is one harmless line, for any octets, in little time

Owns: proofs about shared/mail/found_by.py and the fields that the walk over the header keeps for it.
See: tests/integration/spool/test_found_by.py for what is stored.
"""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.smtpd.content import DataPhase
from shared.mail.found_by import MSGID_KEPT, SUBJECT_KEPT, asked, msgid, subject
from smtpd.message.content import read_header
from tests.fixtures.found_by import MSGIDS, SUBJECTS


@pytest.mark.parametrize(("value", "kept"), MSGIDS)
def test_a_message_id_is_kept_without_its_angle_brackets(value: bytes, kept: str | None) -> None:
    assert msgid(value) == kept


@pytest.mark.parametrize(("value", "kept"), SUBJECTS)
def test_a_subject_is_kept_decoded_and_cut(value: bytes, kept: str | None) -> None:
    assert subject(value) == kept


@pytest.mark.parametrize("word", ["<abc@x.example>", "abc@x.example", " <abc@x.example> "])
def test_a_message_id_is_asked_for_with_or_without_angle_brackets(word: str) -> None:
    assert asked(word) == "abc@x.example"


@given(st.binary(max_size=2000) | st.builds(lambda c, t: b"=?" + c + b"?q?" + t + b"?=", st.binary(), st.binary()))
def test_any_octets_become_one_line_that_postgresql_can_store(value: bytes) -> None:
    for kept, most in ((msgid(value), MSGID_KEPT), (subject(value), SUBJECT_KEPT)):
        if kept is not None:
            assert 0 < len(kept) <= most
            assert not set(kept) & {"\0", "\r", "\n", "\x1b"}
            kept.encode()


@pytest.mark.parametrize("charset", ["utf-7", "utf-16", "unicode_escape", "raw_unicode_escape", "idna", "hex", "zip"])
def test_no_charset_that_a_word_names_breaks_the_subject(charset: str) -> None:
    for text in ("+2AA-", "=d8=00", r"\ud800", "x" * 60):
        (subject(f"=?{charset}?q?{text}?=".encode()) or "").encode()


def test_the_first_field_of_a_name_counts_and_no_field_behind_the_header() -> None:
    content = b"subject: first\r\nSUBJECT: second\r\nMessage-Id : <1@x>\r\nMessage-ID: <2@x>\r\n\r\nSubject: body\r\n"
    assert read_header(content, DataPhase(), "mx.example").kept == {
        b"subject": b" first\r\n",
        b"message-id": b" <1@x>\r\n",
    }
    torn = b"From: a@x.example\r\nthis is no field\r\nSubject: text\r\nMessage-ID: <3@x>\r\n\r\n"
    assert read_header(torn, DataPhase(), "mx.example").kept == {}


@pytest.mark.parametrize(
    "line", [b"Subject: =?utf-8?q?=C3?=\r\n", b"Message-ID: <\r\n", b"Subject:" + b" =?" * 300 + b"\r\n"]
)
def test_a_header_of_ten_megabytes_and_two_hundred_thousand_fields_costs_no_more_than_without_these_fields(
    line: bytes,
) -> None:
    limits = DataPhase(maxheader=20_000_000, maxheaderlines=1_000_000, maxsize=20_000_000)
    times = min(200_000, 10_000_000 // len(line))
    hostile, plain = line * times, (b"X" * 7 + line[7:]) * times

    def cost(content: bytes) -> float:
        began = process_time()
        kept = read_header(content, limits, "mx.example").kept
        assert sum(map(len, kept.values())) <= 3000
        subject(kept.get(b"subject", b""))
        msgid(kept.get(b"message-id", b""))
        return process_time() - began

    # In turns, because the speed of a machine changes.
    costs, without = zip(*((cost(hostile), cost(plain)) for _ in range(3)), strict=True)
    assert min(costs) <= 1.5 * min(without) + 0.05
