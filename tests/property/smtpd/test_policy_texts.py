"""test_policy_texts — no text from a client or rspamd can break a line, a rule or smtpd

Owns: the laws of smtpd/policy/headers.py, smtpd/policy/texts.py, shared/patterns.py and of reading rspamd's answers.
"""

from __future__ import annotations

import encodings
import json
import re
import time
from datetime import UTC, datetime
from email.header import Header

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.http import HttpAnswer
from shared.patterns import matcher
from smtpd.policy.content_check import ACTIONS, read_answer
from smtpd.policy.engine import Facts
from smtpd.policy.headers import HeaderFields, field_lines
from smtpd.policy.texts import Text
from tests.fixtures.processor import least_seconds

LINE = re.compile(rb"[\x21-\x39\x3b-\x7e]+: [\x20-\x7e]*\r\n")
NONE = [*map(chr, range(ord("a"), ord("u")))]  # of two of these no charset has its name
NAMES = st.from_regex(r"[A-Za-z-]{1,20}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary(max_size=500))
@example(b"Subject: =?utf-8?q?=ff?= =?x?y?z?=\r\n\r\n")
@example(b"Subject: =?utf-8?b?####?=\n\tfolded\n\n")
@example(b"Subject: =?idna?q?xn--?=\r\n")
def test_header_fields_of_any_octets_are_parsed(content: bytes) -> None:
    fields = HeaderFields(content)
    for name in ("subject", "from", "x"):
        assert all("\n" not in value or "=?" in content.decode("latin-1") for value in fields.values(name))
        assert fields.first(name) is None or isinstance(fields.first(name), str)


@given(NAMES, st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=50))
def test_a_field_is_found_as_it_was_written(name: str, value: str) -> None:
    fields = HeaderFields(field_lines([("X-Before", "a"), (name, value)]) + b"\r\n" + b"X-Body: no\r\n")
    assert value in fields.values(name.swapcase())
    assert fields.first("x-body") is None or name.lower() == "x-body"


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=60))
def test_an_encoded_field_is_found_by_its_decoded_text(text: str) -> None:
    written = Header(text.strip() or "x", "utf-8", header_name="Subject").encode(linesep="\r\n")
    values = HeaderFields(f"Subject: {written}\r\n\r\n".encode()).values("Subject")
    assert (text.strip() or "x") in values


@pytest.mark.parametrize("part", [b"=?a?q?", b"=?", b"a ", b":", b"\r\n ", b"X: =?utf-8?q?a?=\r\n", b"?= =?"])
def test_a_header_is_parsed_in_linear_time(part: bytes) -> None:
    content = b"Subject: " + part * (1_048_000 // len(part)) + b"\r\n\r\n"
    assert least_seconds(lambda: HeaderFields(content).values("Subject")) < 0.5  # quadratic: many seconds


def test_charsets_that_do_not_exist_are_not_looked_for() -> None:
    """Python looks for a module of each such name, a twelfth of a millisecond, and remembers the name for ever."""
    words = (f"=?{first}{second}-{third}?q?a?=" for first in NONE for second in NONE for third in range(90))
    fields = HeaderFields(f"Subject: {' '.join(words)}\r\n\r\n".encode())
    before, started = codecs_known(), time.thread_time()
    fields.values("Subject")
    assert (codecs_known(), time.thread_time() - started < 0.5) == (before, True)


def codecs_known() -> int:
    """How many names of codecs Python remembers."""
    return len(vars(encodings)["_cache"])


def test_of_many_encoded_words_the_first_are_decoded() -> None:
    [written, decoded] = HeaderFields(b"Subject: " + b"=?utf-8?q?=41?= " * 20_000 + b"\r\n\r\n").values("Subject")
    assert written.startswith("=?utf-8?q?=41?= =?")
    assert re.fullmatch(r"A{4000,4100}(\S* =\?utf-8.*)", decoded)


@pytest.mark.parametrize("charset", ["utf-8", "UTF8", "iso-8859-1", "windows-1252", "koi8-u", "ISO_8859-15*en"])
def test_charsets_of_mail_are_known(charset: str) -> None:
    assert "a b" in HeaderFields(f"Subject: =?{charset}?q?a_b?=\r\n\r\n".encode()).values("Subject")


@given(st.text(), st.text())
@example("\r\n.\r\nMAIL FROM:<>", "\0")
def test_added_fields_are_one_line_each_with_any_text_of_a_client(helo: str, user: str) -> None:
    facts = Facts(now=datetime.now(UTC), client="192.0.2.1", listener="default", helo=helo, user=user)
    filled = Text("by {user} at {helo} ({clientname})").fill(facts)
    assert filled.isprintable()
    lines = field_lines([("X-By", filled), ("X-Raw", helo + user)])
    assert re.fullmatch(LINE.pattern * 2, lines)
    assert max(len(line) for line in lines.splitlines()) <= 998


@given(JSON, st.sampled_from([200, 404, 500]))
@example({"action": "reject", "score": 1e400}, 200)
@example({"action": "reject", "score": True}, 200)
@example({"action": "reject", "score": 10**400}, 200)
@example({"action": "reject", "score": 1, "symbols": [1], "milter": {"add_headers": {"X": [{"value": 3}, None]}}}, 200)
def test_any_answer_of_rspamd_is_a_result_or_a_value_error(said: object, status: int) -> None:
    try:
        result = read_answer(HttpAnswer(status, json.dumps(said).encode()))
    except ValueError:
        return
    assert status == 200
    assert result.action in ACTIONS
    assert re.fullmatch(rb"(?:" + LINE.pattern + rb")*", field_lines(result.headers))


@given(st.dictionaries(st.text(), st.text() | st.lists(st.text()) | st.fixed_dictionaries({"value": st.text()})))
@example({"From": "forged", "Bad:Name": "x", "X-Good": "folded\r\n\t value", "X\n": "x"})
def test_fields_from_rspamd_are_added_only_if_valid(wanted: object) -> None:
    said = {"action": "no action", "score": 0, "milter": {"add_headers": wanted}}
    headers = read_answer(HttpAnswer(200, json.dumps(said).encode())).headers
    assert not {"from", "received"} & {name.lower() for name, _ in headers}
    assert re.fullmatch(rb"(?:" + LINE.pattern + rb")*", field_lines(headers))


@given(st.binary(max_size=200))
@example(b"[" * 200_000)
def test_garbage_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_answer(HttpAnswer(200, body if body.strip().startswith(b"[") else b"x" + body))


@given(st.text(max_size=30).filter(bool))
def test_any_text_is_a_pattern_or_a_value_error(pattern: str) -> None:
    try:
        matches = matcher(pattern)
    except ValueError as error:
        if "allowed: " not in str(error):
            raise
    else:
        matches("some text")


@given(st.text(st.characters(codec="utf-8", exclude_characters="*?/"), min_size=1, max_size=30))
def test_a_glob_without_wildcards_matches_only_itself(text: str) -> None:
    matches = matcher(text)
    assert matches(text.encode(errors="replace").decode())
    assert not matches(text + "x")


@pytest.mark.parametrize("pattern", ["/(a+)+$/", "/(a|aa)+$/", "/^(.*a){20}$/", "*a*a*a*a*a*a*a*a*a*b"])
def test_patterns_with_catastrophic_backtracking_match_in_bounded_time(pattern: str) -> None:
    matches = matcher(pattern)
    assert least_seconds(lambda: matches("a" * 50_000 + "!")) < 1.0  # exponential elsewhere: 60 characters take years
