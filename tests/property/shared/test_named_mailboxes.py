"""test_named_mailboxes — whatever the name of a mailbox is, the composed header has that mailbox and no other"""

from __future__ import annotations

from datetime import UTC, datetime
from email import policy
from email.parser import BytesParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from collect.message import Composer
from collect.templates import SAMPLE, Templates
from collect.token import Signer
from httpd.sending.compose import compose
from httpd.sending.forms import SEND
from httpd.sending.mailbox import read_mailbox
from shared.config.collect.settings import AccountMail
from shared.mail.address import AddressRefused
from shared.mail.from_header import authors

_PARTS = [
    "=?utf-8?q?",
    "=?utf-8?b?",
    "?=",
    "=2C",
    "=40b.example",
    "=3C",
    "=3E",
    "=C3=BC",
    "=22",
    "_",
    " ",
    ",",
    "ü",
    "x",
]
_NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters='"\\'), max_size=60),
    st.lists(st.sampled_from(_PARTS), max_size=12).map("".join),
)


def account_mail(recipient: str, sender: str = "accounts@example.com") -> bytes:
    """The mail of an account."""
    mail = AccountMail(sender=sender, activate="https://example.com/{token}")
    return Composer(mail, Templates(None, "en"), Signer(bytes(32)))(SAMPLE._replace(email=recipient)).content


@given(_NAMES, st.booleans())
@example("=?utf-8?q?ceo=40b.example=2C_=C3=BC?=", False)
@example("=?utf-8?q?x=2C_y?=", False)
@example("=?utf-8?q?=28?=", True)
def test_the_header_has_the_one_mailbox(name: str, quoted: bool) -> None:  # noqa: FBT001 - drawn
    text = f'"{name}" <ann@example.com>' if quoted else f"{name} <ann@example.com>"
    try:
        send = SEND.validate_python({"from": text, "to": [text], "text": "x"})
    except ValidationError:
        return
    content = compose(send, "id@example.com", datetime.now(UTC), international=False)
    found = authors(content)
    assert found is not None
    assert [str(each.address) for each in found] == ["ann@example.com"]
    message = BytesParser(policy=policy.default).parsebytes(content)
    assert [each.addr_spec for each in message["To"].addresses] == ["ann@example.com"]


def test_an_encoded_name_is_what_it_means() -> None:
    assert read_mailbox("=?utf-8?q?M=C3=BCller=2C_Ann?= <ann@example.com>").name == "Müller, Ann"


def test_a_word_within_a_word_is_refused() -> None:
    with pytest.raises(ValueError, match="encoded word in another"):
        read_mailbox("=?utf-8?q?=3D=3Futf-8=3Fq=3Fx=3F=3D?= <ann@example.com>")


@pytest.mark.parametrize(
    "localpart", ["=?utf-8?q?ceo=40b.example=2C_=C3=BC?=", "=?utf-8?q?x=2Cy?=.b", '"=?utf-8?q?x?="']
)
def test_an_encoded_word_in_an_address_is_refused(localpart: str) -> None:
    with pytest.raises(ValueError, match="encoded word in local-part"):
        read_mailbox(f"{localpart}@example.com")
    with pytest.raises(AddressRefused):
        account_mail(f"{localpart}@example.com")


@pytest.mark.parametrize(
    "address", ['"b o,b"@example.com', '"b\\"b"@example.com', "bü@example.com", '"b ü"@example.com']
)
def test_a_local_part_is_shown_as_it_is_and_quoted_once(address: str) -> None:
    send = SEND.validate_python({"from": "ann@example.com", "to": [f"Bob <{address}>"], "text": "x"})
    content = compose(send, "id@example.com", datetime.now(UTC), international=not address.isascii())
    assert f"\r\nTo: Bob <{address}>\r\n".encode() in content
    assert f"\r\nTo: {address}\r\n".encode() in account_mail(address)
    assert account_mail("ann@example.com", sender=address).startswith(f"From: {address}\r\n".encode())


def test_a_text_that_is_too_long_is_not_read() -> None:
    before = read_mailbox.cache_info().misses
    with pytest.raises(ValidationError, match="at most 998 characters"):
        SEND.validate_python({"from": "x" * 999 + " <ann@example.com>", "to": [], "text": "x"})
    assert read_mailbox.cache_info().misses == before
