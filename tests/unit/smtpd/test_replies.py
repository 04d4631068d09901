"""test_replies — a reply's code is in its name and its text, and the enhanced code agrees

Owns: proofs about every constant of smtpd/replies.py.
See: RFC 5321 section 4.2.1, RFC 2034 section 4, RFC 3463 section 2.
"""

from __future__ import annotations

import re
import string

import pytest

from smtpd import replies
from tests.layout.sources import python_files, read

REPLIES = {name: text for name, text in vars(replies).items() if re.match(r"R\d", name)}
_REPLY = re.compile(r"(?P<code>[2345][0-9]{2}) (?:(?P<enhanced>(?P<class>[245])\.[0-9]{1,3}\.[0-9]{1,3}) )?\S.*")
# Greetings and intermediate replies have no enhanced code (RFC 2034 section 4).
PLAIN = {"R220_GREETING", "R250_HELLO", "R354_GO_ON"}  # the answer to HELO is older than enhanced codes
# The replies for faults of ours.
OURS = {"R421_STOPPING", "R421_FAULT", "R451_LOCAL_ERROR"}


def test_the_replies_are_found() -> None:
    assert len(REPLIES) > 10


def test_name_text_and_enhanced_code_agree() -> None:
    for name, text in REPLIES.items():
        assert re.fullmatch(r"R[2345][0-9]{2}(_[A-Z0-9]+)+", name)
        reply = _REPLY.fullmatch(text)
        assert reply is not None, text
        assert name.startswith(f"R{reply['code']}_"), name
        assert reply["class"] == (None if name in PLAIN else reply["code"][0]), name


def test_a_reply_is_one_printable_line_that_fits() -> None:
    for text in REPLIES.values():
        assert text.isascii(), text
        assert text.isprintable(), text
        # Of 512 octets (RFC 5321 section 4.5.3.1.5), with room for the placeholders.
        assert len(text) < 400, text


@pytest.mark.parametrize("name", sorted(OURS))
def test_replies_about_our_own_faults_are_4xx_without_details(name: str) -> None:
    assert REPLIES[name].startswith("4")
    assert [field for _, field, _, _ in string.Formatter().parse(REPLIES[name]) if field] == []


def test_every_reply_is_used_and_250_for_a_message_in_one_place() -> None:
    used = "\n".join(read(path) for path in python_files("smtpd") if path.name != "replies.py")
    assert [name for name in REPLIES if f"replies.{name}" not in used] == []
    assert used.count("R250_QUEUED") == 1


def test_all_replies_differ() -> None:
    assert len(set(REPLIES.values())) == len(REPLIES)
