"""test_parameters — any parameters of MAIL and RCPT are parsed or refused, and encoded values are decoded

Owns: properties of smtpd/envelope/parameters.py, smtpd/envelope/parameter_values.py and shared/mail/xtext.py.
See: RFC 5321 section 4.1.2, RFC 3461 section 4, RFC 6533 section 3.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from string import ascii_letters, digits
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from shared.mail import xtext
from smtpd.envelope.parameters import MailParameters, Offered, RcptParameters, Refused, mail_parameters, rcpt_parameters

NOW: Final = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
EVERYTHING: Final = Offered(
    size=10_000_000,
    eightbitmime=True,
    binarymime=True,
    smtputf8=True,
    dsn=True,
    hold=timedelta(days=30),
    priority=True,
    requiretls=True,
    tls=True,
    auth=True,
)
KEYWORDS: Final = [
    "SIZE",
    "BODY",
    "SMTPUTF8",
    "RET",
    "ENVID",
    "HOLDFOR",
    "HOLDUNTIL",
    "MT-PRIORITY",
    "REQUIRETLS",
    "AUTH",
    "NOTIFY",
    "ORCPT",
    "X-NEW",
]
REPLY: Final = re.compile(r"5[0-9]{2} 5\.[0-9]{1,3}\.[0-9]{1,3} \S.*")
PRINTABLE: Final = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E))
VALUES: Final = st.one_of(
    st.text(),
    PRINTABLE,
    st.integers().map(str),
    st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ")),
    st.sampled_from(
        [
            "8BITMIME",
            "7bit",
            "FULL",
            "HDRS",
            "NEVER",
            "SUCCESS,FAILURE",
            "<>",
            "rfc822;a+2Bb@x",
            "utf-8;\\x{E9}@x",
            "-9",
            "0",
            "9",
        ]
    ),
    st.from_regex(r"rfc822;[!-~]{0,600}", fullmatch=True),
    st.from_regex(r"(utf-8;)?(\\x\{[0-9A-F]{1,7}\}|[a-z+=])*", fullmatch=True),
    st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})", fullmatch=True),
)
WORDS: Final = st.lists(
    st.one_of(
        st.text(),
        st.tuples(st.sampled_from(KEYWORDS) | st.text(ascii_letters + digits + "-"), VALUES).map("=".join),
        st.sampled_from(KEYWORDS),
    ),
    max_size=6,
)


def outcome(words: list[str], offered: Offered) -> tuple[MailParameters | str, RcptParameters | str]:
    """The parameters that MAIL and RCPT parse from these words, or the reply that refuses them."""
    mail: MailParameters | str
    rcpt: RcptParameters | str
    try:
        mail = mail_parameters(words, offered, NOW)
    except Refused as refusal:
        mail = refusal.reply
    try:
        rcpt = rcpt_parameters(words, offered, smtputf8=True)
    except Refused as refusal:
        rcpt = refusal.reply
    return mail, rcpt


@given(WORDS)
def test_any_parameters_are_parsed_or_refused_by_one_printable_reply(words: list[str]) -> None:
    for reply in outcome(words, EVERYTHING):
        if isinstance(reply, str):
            assert REPLY.fullmatch(reply), reply
            assert reply.isprintable()
            assert reply.isascii()
            assert len(reply) < 200


@given(WORDS)
def test_after_helo_every_parameter_is_refused(words: list[str]) -> None:
    assert [isinstance(found, str) for found in outcome(words, Offered())] == [bool(words)] * 2


@given(st.lists(st.tuples(st.sampled_from(KEYWORDS), VALUES), max_size=4))
def test_keywords_are_parsed_in_any_case(pairs: list[tuple[str, str]]) -> None:
    words = [f"{keyword}={value}" for keyword, value in pairs]
    assert outcome(words, EVERYTHING) == outcome([f"{k.lower()}={v}" for k, v in pairs], EVERYTHING)


@given(PRINTABLE)
def test_xtext_is_decoded(text: str) -> None:
    written = xtext.encode(text)
    assert re.fullmatch(r"[!-*,-<>-~+]*", written)
    assert xtext.decode(written) == text


@given(st.text().filter(str.isprintable))
def test_an_international_orcpt_is_decoded(text: str) -> None:
    written = xtext.encode_address(text)
    assert written.isascii()
    assert xtext.decode_address(written, smtputf8=False) == text


@given(PRINTABLE.filter(lambda text: 0 < len(text) <= 33))
def test_envid_and_orcpt_are_decoded(text: str) -> None:
    written = xtext.encode(text)
    assert mail_parameters([f"ENVID={written}"], EVERYTHING, NOW).envid == text
    assert rcpt_parameters([f"ORCPT=RFC822;{written}"], EVERYTHING).orcpt == ("rfc822", text)


@given(st.integers(1, 30 * 86400), st.integers(-9, 9), st.integers(0, 10_000_000))
def test_numbers_are_parsed(hold: int, priority: int, size: int) -> None:
    words = [f"HOLDFOR={hold}", f"MT-PRIORITY={priority}", f"SIZE={size}"]
    found = mail_parameters(words, EVERYTHING, NOW)
    assert (found.hold_until, found.priority, found.size) == (NOW + timedelta(seconds=hold), priority, size)


@given(st.datetimes(NOW.replace(tzinfo=None), (NOW + timedelta(days=40)).replace(tzinfo=None)))
def test_an_allowed_release_time_is_accepted_and_any_other_refused(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, tzinfo=UTC)
    try:
        held = mail_parameters([f"HOLDUNTIL={moment:%Y-%m-%dT%H:%M:%SZ}"], EVERYTHING, NOW).hold_until
    except Refused:
        held = None
    assert held == (moment if NOW < moment <= NOW + timedelta(days=30) else None)
