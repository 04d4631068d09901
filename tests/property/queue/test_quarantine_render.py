"""test_quarantine_render — rendering any message has no side effect

Guarantees: render never raises; its output is printable, bounded, and one line where a line is expected; parts are
    within the message, in order, without overlap.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from operate.mime.html_text import from_html
from operate.mime.parts import DEEPEST, MOST_PARTS, walk
from operate.mime.render import render
from shared.mail.decode import decoded

# Pieces that mean something to one of the readers, put together in any order between any octets.
PIECES = (
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b" ", b"\t", b"--", b"--b", b"--b--", b"--c"),
    *(b"\n--b\r\n", b"\n--c\r\n", b"Content-Type: multipart/mixed; boundary=b", b"Content-Type: text/html"),
    *(b'content-type:multipart/x; boundary="c"', b"Content-Type: text/plain; charset=", b"utf-7", b"punycode"),
    *(b"Content-Transfer-Encoding: base64", b"Content-Transfer-Encoding: quoted-printable", b"utf-16"),
    *(b"Content-Disposition: attachment; filename=", b"filename*0*=", b"utf-8''%1b%0d%0a%e2%80%ae", b"Subject: "),
    *(b"=?utf-8?q?=1B=0A?=", b"=?utf-8?b?G1sxbQ==?=", b"=?utf-7?q?+ACoA-?=", b"From: ", b"\x1b[31m", b"\x9b"),
    *(b"\x07", b"\x00", b"\xe2\x80\xae", b"\xe2\x81\xa6", b"\xc2\x85", b"\xff\xfe", b"<script>", b"</script>"),
    *(b"<!--", b"-->", b"<p ", b">", b"&#x1b;", b"&#27", b"<svg/onload=", b'"', b"'", b"=1B"),
)
messages = st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=60).map(b"".join)


def is_line(text: str) -> bool:
    return all(character.isprintable() for character in text)


@given(messages | st.binary())
@settings(max_examples=500)
def test_any_octets_are_rendered_as_printable_text(content: bytes) -> None:
    shown = render(content)
    assert all(map(is_line, shown.text.split("\n")))
    assert all(is_line(said) and len(said) <= 500 for said in shown.header.values())
    assert all(is_line(part.type) and is_line(part.name) and len(part.name) <= 100 for part in shown.parts)
    assert all(map(is_line, shown.notes))


@given(messages)
@settings(max_examples=500)
def test_parts_are_consecutive_within_the_message(content: bytes) -> None:
    walked = walk(content)
    at = 0
    for part in walked.parts:
        assert at <= part.start <= part.end <= len(content)
        assert part.depth <= DEEPEST
        at = part.end
    assert len(walked.parts) == min(walked.count, MOST_PARTS)


@given(messages)
def test_a_header_field_is_one_printable_line(value: bytes) -> None:
    said = decoded(value)
    assert is_line(said)
    assert len(said) <= 500


@given(st.lists(st.text(alphabet="ab \n<", max_size=10)).map("<p>".join))
def test_text_outside_of_tags_is_kept(text: str) -> None:
    plain = "".join(text.replace("<", "&lt;").split())
    assert "".join(from_html(text.replace("<", "&lt;"))[0].split()) == plain.replace("&lt;p>", "<p>").replace(
        "&lt;", "<"
    )
