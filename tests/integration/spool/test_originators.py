"""test_originators — From, Sender and Resent- fields of mail by SQL name only addresses that its principal may use

Owns: proofs about originators_checked of enqueue: what it refuses, and that what it accepts smtpd's rule accepts too.
See: sql/schema/06_principal.sql; smtpd/message/sender_check.py; docs/how-to/rights/say-on-whose-behalf.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smtpd.envelope.client import User
from smtpd.message.sender_check import originator_fault
from tests.fixtures.database.principals import acting, agent, principal

if TYPE_CHECKING:
    from tests.fixtures.database.factory import Factory
    from tests.fixtures.database.logins import Logins

PATTERNS = ["shop@a.example", "*.lists.example"]
ENQUEUE = b"SELECT pillarbox.enqueue('shop@a.example', '{r@example.com}', %s)"
OWN = b"From: shop@a.example\r\n"


def refused(factory: Factory, content: bytes) -> str | None:
    """The field that SQL refuses."""
    field: str | None = factory.one(
        "SELECT pillarbox.originator_refused(%(patterns)s::text[], %(content)s)", patterns=PATTERNS, content=content
    )
    return field


@pytest.mark.parametrize(
    ("header", "field"),
    [
        (b"From: boss@a.example\r\n", "From"),
        (b"Subject: x\r\n", "From"),
        (OWN + OWN, "From"),
        (OWN + b"Sender: boss@a.example\r\n", "Sender"),
        (OWN + b"Resent-From: Boss\r\n <boss@a.example>\r\n", "Resent-From"),
    ],
)
def test_a_principal_cannot_name_another_author_or_sender(
    factory: Factory, logins: Logins, header: bytes, field: str
) -> None:
    principal(factory, "shop", "sender", senders=PATTERNS)
    principal(factory, "any", "sender")
    with psycopg.connect(agent(factory, logins), autocommit=True) as session:
        with (
            pytest.raises(psycopg.errors.InsufficientPrivilege, match=f'"shop" may not send mail with such a {field} '),
            acting(session, "shop"),
        ):
            session.execute(ENQUEUE, (header + b"\r\nbody\r\n",))
        assert factory.queue() == []
        with acting(session, "any"):
            session.execute(ENQUEUE, (header + b"\r\nbody\r\n",))
    assert len(factory.queue()) == 1


@pytest.mark.parametrize(
    "header",
    [
        OWN,
        b"from : Shop <shop@A.example>\r\n",
        b'From: "Boss, boss@b.example" <shop@a.example>,\r\n\tnews@x.lists.example\r\n',
        b"From: shop@a.example <shop@a.example>\r\n",
        b"From: =?utf-8?q?M=C3=BCller=2C_A?=\r\n <shop@a.example>\r\n",
        b"From: M\xc3\xbcller <shop@a.example>\r\n",
        OWN + b"Sender: shop@a.example\r\nResent-Sender: <shop@a.example>\r\nX-From: boss@b.example\r\n",
        OWN[:-2],
    ],
)
def test_the_usual_forms_of_own_addresses_pass(factory: Factory, header: bytes) -> None:
    content = header + b"\r\nFrom: boss@b.example\r\n" if header.endswith(b"\r\n") else header
    assert refused(factory, content) is None
    assert originator_fault(User("shop", senders=PATTERNS), content, adds_from=False) is None


def test_a_header_that_does_not_end_in_what_is_read_is_refused(factory: Factory) -> None:
    filled = OWN + b"X: y\r\n" * 12_000
    assert refused(factory, filled + b"From: boss@b.example\r\n\r\n") == "From"
    assert refused(factory, OWN + b"\r\n" + b"X: y\r\n" * 12_000) is None


_ADDRESSES = ["shop@a.example", "boss@b.example", "n@x.lists.example", "shop", "@", "."]
_MARKS = ["<", ">", ",", ";", ":", '"', "(", ")", "\\", " ", "\r\n ", "[", "]", "-"]
_PIECES = st.sampled_from([*_ADDRESSES, *_MARKS, "é", "\x85", "\xa0", "\x0b", "=?utf-8?q?x?="])
_NAMES = st.sampled_from(["From", "from ", "Sender", "Resent-From", "RESENT-SENDER", "Subject", "From\r\n ", " From"])
_FIELDS = st.tuples(_NAMES, st.lists(_PIECES, max_size=7).map("".join)).map(lambda pair: f"{pair[0]}:{pair[1]}\r\n")
_OWN = st.sampled_from(["From: shop@a.example\r\n", "From: a <shop@a.example>\r\n", ""])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=_OWN, fields=st.lists(_FIELDS, max_size=2), encoding=st.sampled_from(["utf-8", "latin-1"]))
def test_what_sql_accepts_smtpd_accepts_too(factory: Factory, own: str, fields: list[str], encoding: str) -> None:
    content = ("".join([*fields, own]) + "\r\nbody\r\n").encode(encoding)
    if refused(factory, content) is None:
        assert originator_fault(User("shop", senders=PATTERNS), content, adds_from=False) is None
