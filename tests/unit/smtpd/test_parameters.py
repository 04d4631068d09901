"""test_parameters — each ESMTP parameter: its value, and the reply to an invalid one

Owns: examples for smtpd/envelope/parameters.py.
See: the RFC named beside each case.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from smtpd.envelope.parameters import (
    NOTHING_OFFERED,
    Offered,
    OriginalRecipient,
    RcptParameters,
    Refused,
    futurerelease,
    mail_parameters,
    rcpt_parameters,
)

NOW: Final = datetime(2026, 11, 21, 7, 0, tzinfo=UTC)
OFFERED: Final = Offered(
    size=1000,
    eightbitmime=True,
    smtputf8=True,
    dsn=True,
    hold=timedelta(days=7),
    priority=True,
    requiretls=True,
    tls=True,
    auth=True,
)


def refusal(words: str, offered: Offered = OFFERED) -> str:
    with pytest.raises(Refused) as refused:
        mail_parameters(words.split(" "), offered, NOW)
    return refused.value.reply


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        ("SIZE=1000", {"size": 1000}),  # RFC 1870 section 6.1: the limit itself is allowed
        ("SIZE=0", {"size": 0}),
        ("BODY=8bitmime", {"body": "8BITMIME"}),  # RFC 6152
        ("body=7BIT", {"body": "7BIT"}),
        ("SMTPUTF8", {"smtputf8": True}),  # RFC 6531 section 3.4
        ("RET=hdrs ENVID=QQ+2B314159", {"ret": "HDRS", "envid": "QQ+314159"}),  # RFC 3461 sections 4.3, 4.4
        ("ENVID=a+20b", {"envid": "a b"}),
        ("MT-PRIORITY=-9", {"priority": -9}),  # RFC 6710 section 7
        ("MT-PRIORITY=0", {"priority": 0}),
        ("REQUIRETLS", {"requiretls": True}),  # RFC 8689 section 2
        ("AUTH=<>", {"auth": "<>"}),  # RFC 4954 section 5
        ("AUTH=e+3Dmc2@example.com", {"auth": "e=mc2@example.com"}),
        ("HOLDFOR=604800", {"hold_until": NOW + timedelta(days=7), "hold_request": "for;604800"}),  # RFC 4865
        (
            "HOLDUNTIL=2026-11-21T09:00:00+01:00",
            {"hold_until": NOW + timedelta(hours=1), "hold_request": "until;2026-11-21T09:00:00+01:00"},
        ),
        ("HOLDUNTIL=2026-11-22t07:59:60.5z", {"hold_until": datetime(2026, 11, 22, 7, 59, 59, tzinfo=UTC)}),
    ],
)
def test_each_parameter_of_mail_is_parsed(words: str, becomes: dict[str, Any]) -> None:
    found = mail_parameters(words.split(), OFFERED, NOW)
    assert {name: getattr(found, name) for name in becomes} == becomes


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("SIZE=1001", "552 5.3.4 "),  # RFC 1870 section 6.1
        ("SIZE=-1", "501 5.5.4 Bad value of parameter SIZE"),
        ("SIZE=999999999999999999999", "501 5.5.4 Bad value of parameter SIZE"),
        ("SIZE", "501 5.5.4 Bad value of parameter SIZE: it is missing"),
        ("SIZE=", "501 5.5.4 Bad value of parameter SIZE: is empty"),
        ("SIZE=1 size=1", "501 5.5.4 Parameter SIZE is given twice"),
        ("SIZE=\u0661", "501 5.5.4 Bad value of parameter SIZE"),  # a digit, but no ASCII one
        ("BODY=BINARYMIME", "501 5.5.4 Bad value of parameter BODY: allowed: 7BIT, 8BITMIME"),
        ("BODY=9BIT", "501 5.5.4 Bad value of parameter BODY"),
        ("SMTPUTF8=yes", "501 5.5.4 Bad value of parameter SMTPUTF8: it takes none"),
        ("REQUIRETLS=1", "501 5.5.4 Bad value of parameter REQUIRETLS: it takes none"),
        ("RET=BODY", "501 5.5.4 Bad value of parameter RET: allowed: FULL, HDRS"),
        ("RET=FULL RET=FULL", "501 5.5.4 Parameter RET is given twice"),  # RFC 3461 section 4.5
        ("ENVID=a+b", "501 5.5.4 Bad value of parameter ENVID: not xtext"),
        ("ENVID=a+0Db", "501 5.5.4 Bad value of parameter ENVID: not printable"),
        ("ENVID=" + "x" * 101, "501 5.5.4 Bad value of parameter ENVID: longer than 100"),
        ("ENVID=a\r\nBcc:x", "501 5.5.4 Bad value of parameter ENVID"),
        ("MT-PRIORITY=10", "501 5.5.4 Bad value of parameter MT-PRIORITY"),
        ("MT-PRIORITY=+3", "501 5.5.4 Bad value of parameter MT-PRIORITY"),
        ("MT-PRIORITY=-0", "501 5.5.4 Bad value of parameter MT-PRIORITY"),
        ("HOLDFOR=0", "501 5.5.4 Bad value of parameter HOLDFOR"),  # RFC 4865 section 4.2
        ("HOLDFOR=604801", "501 5.5.4 Bad value of parameter HOLDFOR: more than 604800 seconds ahead"),
        ("HOLDFOR=60 HOLDUNTIL=2026-11-21T08:00:00Z", "501 5.5.4 HOLDFOR and HOLDUNTIL exclude each other"),
        ("HOLDUNTIL=2026-11-21T07:00:00Z", "501 5.5.4 Bad value of parameter HOLDUNTIL: it has passed"),
        ("HOLDUNTIL=2027-11-21T07:00:00Z", "501 5.5.4 Bad value of parameter HOLDUNTIL: more than"),
        ("HOLDUNTIL=2026-11-31T07:00:00Z", "501 5.5.4 Bad value of parameter HOLDUNTIL: allowed"),
        ("HOLDUNTIL=0001-01-01T00:00:00+23:59", "501 5.5.4 Bad value of parameter HOLDUNTIL: allowed"),
        ("HOLDUNTIL=tomorrow", "501 5.5.4 Bad value of parameter HOLDUNTIL: allowed"),
        ("AUTH=a+b", "501 5.5.4 Bad value of parameter AUTH: not xtext"),
        ("NOTIFY=NEVER", "555 5.5.4 Parameter NOTIFY is not offered here"),  # RCPT's
        ("X-ANY=1", "555 5.5.4 Parameter X-ANY is not offered here"),  # RFC 5321 section 4.1.1.11
        ("=1", "501 5.5.4 Bad parameter"),
        ("-SIZE=1", "501 5.5.4 Bad parameter"),
        ("SI\0ZE=1", "501 5.5.4 Bad parameter"),
        ("\u017fIZE=1", "501 5.5.4 Bad parameter"),  # in capitals it would be SIZE
    ],
)
def test_an_invalid_parameter_of_mail_is_refused(words: str, reply: str) -> None:
    assert refusal(words).startswith(reply)


@pytest.mark.parametrize(
    "words",
    [
        "SIZE=1",
        "BODY=8BITMIME",
        "SMTPUTF8",
        "RET=FULL",
        "ENVID=x",
        "HOLDFOR=1",
        "HOLDUNTIL=2026-11-21T08:00:00Z",
        "MT-PRIORITY=1",
        "AUTH=<>",
    ],
)
def test_an_unoffered_parameter_is_555(words: str) -> None:
    assert refusal(words, NOTHING_OFFERED).startswith("555 5.5.4 ")


def test_requiretls_needs_tls_and_an_offer() -> None:
    assert refusal("REQUIRETLS", Offered(tls=False)).startswith("530 5.7.0 ")
    assert refusal("REQUIRETLS", Offered(tls=True)).startswith("555 5.5.4 ")


def test_a_high_priority_requires_relay_rights() -> None:
    """RFC 6710 section 4.1: an untrusted client gets no priority above 0; any client may use one below 0."""
    lowly = Offered(priority=True, relay=False)
    assert mail_parameters(["MT-PRIORITY=5"], lowly, NOW).priority == 0
    assert mail_parameters(["MT-PRIORITY=-5"], lowly, NOW).priority == -5


def test_without_a_limit_any_size_is_accepted() -> None:
    assert mail_parameters(["SIZE=99999999999"], Offered(size=0), NOW).size == 99_999_999_999


@pytest.mark.parametrize(
    ("words", "becomes"),
    [
        ("NOTIFY=never", RcptParameters(notify=frozenset({"NEVER"}))),  # RFC 3461 section 4.1
        ("NOTIFY=SUCCESS,delay,,SUCCESS", RcptParameters(notify=frozenset({"SUCCESS", "DELAY"}))),
        ("ORCPT=RFC822;bob+2Bx@example.com", RcptParameters(orcpt=OriginalRecipient("rfc822", "bob+x@example.com"))),
        (
            "ORCPT=utf-8;zo\\x{EB}@example.com",
            RcptParameters(orcpt=OriginalRecipient("utf-8", "zoë@example.com")),
        ),  # RFC 6533 section 3
        ("ORCPT=utf-8;zoë@example.com", RcptParameters(orcpt=OriginalRecipient("utf-8", "zoë@example.com"))),
    ],
)
def test_each_parameter_of_rcpt_is_parsed(words: str, becomes: RcptParameters) -> None:
    assert rcpt_parameters(words.split(), OFFERED, smtputf8=True) == becomes


@pytest.mark.parametrize(
    "words",
    [
        "NOTIFY=NEVER,SUCCESS",
        "NOTIFY=,",
        "NOTIFY=ALWAYS",
        "NOTIFY",
        "NOTIFY=\u017fUCCESS",
        "ORCPT=bob@example.com",
        "ORCPT=rfc822;",
        "ORCPT=;x",
        "ORCPT=rfc(822);x",
        "ORCPT=rfc822;a=b@x",
        "ORCPT=rfc822;a+0Ab@x",
        "ORCPT=rfc822;" + "x" * 500,
        "ORCPT=utf-8;\\x{D800}@x",
        "ORCPT=utf-8;\\x{FFFFFF}@x",
        "ORCPT=utf-8;\\x{0A}@x",
        "ORCPT=utf-8;zoë@x",  # without SMTPUTF8
        "ORCPT=rfc822;a ORCPT=rfc822;a",
    ],
)
def test_an_invalid_parameter_of_rcpt_is_refused(words: str) -> None:
    with pytest.raises(Refused) as refused:
        rcpt_parameters(words.split(" "), OFFERED)
    assert refused.value.reply.startswith("501 5.5.4 ")


def test_the_futurerelease_offer_has_seconds_and_a_time() -> None:
    """RFC 4865 section 3."""
    assert futurerelease(timedelta(days=1), NOW) == "FUTURERELEASE 86400 2026-11-22T07:00:00Z"
