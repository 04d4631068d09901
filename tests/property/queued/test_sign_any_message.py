"""test_sign_any_message — signing changes no content, and the signature of any content verifies

See: RFC 6376 section 3.4.4 for the relaxed body, section 3.4.5 for examples; tests/fixtures/corpus.py for real mail.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import pytest
from dkim.canonicalization import Relaxed
from hypothesis import given
from hypothesis import strategies as st

from queued.signing import sign_content
from queued.signing.sign_content import body_digest, header_end
from queued.smtp import content as smtp_content
from queued.smtp.content import wire_pieces, wire_size, without_strays
from queued.values import Body
from shared.mail.submitted import as_submitted
from tests.fixtures.daemons.signing import MESSAGE, claimed, key_files, rule, signer, verified

if TYPE_CHECKING:
    from pathlib import Path

    from queued.signing.sign import Signer

# Real messages that no signature can cover, and why; each leaves as it came.
UNSIGNED = {
    "error_emails-bad_encoded_subject.eml",  # no From
    "error_emails-multiple_references_with_one_invalid.eml",  # a line of the header is not a field
    "plain_emails-raw_email_incorrect_header.eml",  # the same
    "plain_emails-mix_caps_content_type.eml",  # From cannot be read in one way: words beside an address
    "plain_emails-raw_email_multiple_from.eml",  # the same: two addresses without a comma
    "rfc2822-example13.eml",  # white space before the colon
}

PARTS = st.sampled_from([b"\r\n", b"\r\n\r\n", b" ", b"\t", b"  \t", b"a", b".", b"=", b"\xe9", b"text and  more"])
BODIES = st.lists(PARTS, max_size=40).map(b"".join)
ANY = st.lists(st.sampled_from([b"\r", b"\n", b"\r\n", b".", b"\x00", b" ", b"a", b"\xe9"]), max_size=40).map(b"".join)


@pytest.fixture(scope="session")
def everybody_s(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    """Signs mail of every domain with both algorithms."""
    return signer(rule(key_files(tmp_path_factory.mktemp("keys"), "rsa", "ed"), senderdomain=["*"]))


async def leaves(by: Signer, content: bytes) -> tuple[int, bytes]:
    """The number of signatures that verify on the received message; without them it is the message to be sent."""
    body = Body(content, smtputf8=False)
    signature = await by.sign(body, claimed())
    assert signature.fault is None
    assert body.content == content
    wire = b"".join(wire_pieces(content, signature.fields))
    received = re.sub(rb"(?m)^\.", b"", wire.removesuffix(b".\r\n"))
    assert wire_size(content, signature.fields) == len(received)
    assert received.startswith(signature.fields)
    return verified(received), received.removeprefix(signature.fields)


@pytest.mark.parametrize("piece", [2, 3, 7, 1 << 18])
@given(body=BODIES)
def test_the_digest_is_that_of_the_relaxed_body(piece: int, body: bytes) -> None:
    usual, sign_content._PIECE = sign_content._PIECE, piece  # type: ignore[misc] # any split is allowed
    try:
        content = b"From: a@origin.example\r\n\r\n" + body
        relaxed = Relaxed.canonicalize_body(body if body.endswith(b"\r\n") else body + b"\r\n")
        assert body_digest(content, header_end(content)) == hashlib.sha256(relaxed).digest()
    finally:
        sign_content._PIECE = usual  # type: ignore[misc]


@pytest.mark.parametrize("piece", [1, 2, 7])
@given(content=ANY)
def test_strays_are_replaced_whatever_the_pieces(piece: int, content: bytes) -> None:
    """A piece is looked at by itself, since no other thread runs meanwhile."""
    usual, smtp_content.PIECE = smtp_content.PIECE, piece  # type: ignore[misc] # any split is allowed
    try:
        assert without_strays(content) == re.sub(rb"\r(?!\n)|(?<!\r)\n|\x00", b" ", content)
    finally:
        smtp_content.PIECE = usual  # type: ignore[misc]


def test_content_of_strays_is_looked_at_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []

    class Counted:
        """The pattern, noting how much each call is given."""

        def sub(self, by: bytes, octets: bytes) -> bytes:
            pieces.append(len(octets))
            return octets.replace(b"\n", by)

    monkeypatch.setattr(smtp_content, "_STRAY", Counted())
    assert without_strays(b"\n" * 1_000_000) == b" " * 1_000_000
    assert max(pieces) <= smtp_content.PIECE + 1


@given(body=BODIES | ANY)
async def test_any_body_verifies_and_stays_as_it_is(everybody_s: Signer, body: bytes) -> None:
    header = MESSAGE[: header_end(MESSAGE)] + b"\r\n"
    count, sent = await leaves(everybody_s, header + body)
    assert count == 2
    assert sent.startswith(without_strays(header + body))


@given(header=BODIES | ANY)
async def test_any_header_leaves_verified_or_unsigned(everybody_s: Signer, header: bytes) -> None:
    content = header + MESSAGE
    count, sent = await leaves(everybody_s, content)
    assert count in {0, 2}
    assert sent == without_strays(content)


async def test_real_mail_verifies_and_stays_as_it_is(everybody_s: Signer, corpus: list[Path]) -> None:
    unsigned = set()
    for file in corpus:
        content = as_submitted(file.read_bytes())
        count, sent = await leaves(everybody_s, content)
        assert sent in {content, content + b"\r\n"}
        if count != 2:
            assert count == 0
            unsigned.add(file.name)
    assert unsigned == UNSIGNED & {file.name for file in corpus}
