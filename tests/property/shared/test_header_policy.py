"""test_header_policy — messages have the octets that the standard library's policies give them"""

from __future__ import annotations

from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.mail.header_policy import ASCII, UTF8

_TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=250)


def _octets(by: policy.EmailPolicy[Any], name: str, subject: str) -> bytes:
    message = EmailMessage(by)
    message["From"] = Address(name, "ann", "example.com")
    message["To"] = Address(name, "bob", "example.net")
    message["Subject"] = subject
    message.set_content(subject)
    message.add_alternative(f"<p>{subject}</p>", subtype="html")
    message.set_boundary("=_1")
    return message.as_bytes()


@given(_TEXT, _TEXT)
def test_the_octets_are_those_of_the_standard_library(name: str, subject: str) -> None:
    for ours, theirs in ((ASCII, policy.SMTP), (UTF8, policy.SMTPUTF8)):
        expected = _octets(theirs, name, subject)
        assert _octets(ours, name, subject) == expected
        assert _octets(ours, name, subject) == expected  # from what was kept


def test_a_field_keeps_its_own_octets_beside_one_of_equal_value() -> None:
    def written(subject: str, by: policy.EmailPolicy[Any]) -> bytes:
        message = EmailMessage(by)
        message["Subject"] = subject
        return message.as_bytes()

    for subject in ("=?utf-8?q?caf=C3=A9?=", "café", "=?utf-8?b?Y2Fmw6k=?=", "=?utf-8?q?caf=C3=A9?="):
        assert written(subject, ASCII) == written(subject, policy.SMTP)


def test_a_line_end_in_a_value_is_refused_each_time() -> None:
    message = EmailMessage(ASCII)
    for _ in range(2):
        with pytest.raises(ValueError, match="linefeed"):
            message["Subject"] = "a\r\nBcc: b@example.com"


def test_a_second_from_is_refused() -> None:
    message = EmailMessage(ASCII)
    message["From"] = "ann@example.com"
    with pytest.raises(ValueError, match="1 From"):
        message["From"] = "bob@example.com"
