"""test_quarantine_render — a reviewer sees a message's parts and text, and nothing active

Owns: cases for operate.mime.parts, decode, html_text and render; the comparison of parts with the standard
    library's parser on real mail; bombs and how long they may take.
See: tests/property/queue/test_quarantine_render.py for any octets at all.
"""

from __future__ import annotations

import email
from email.policy import compat32
from time import thread_time
from typing import TYPE_CHECKING

import pytest

from operate.mime.html_text import from_html
from operate.mime.parts import DEEPEST, MOST_COUNTED, MOST_PARTS, walk
from operate.mime.render import NotShown, ShownPart, fields_of, render
from shared.mail.decode import characters, decoded, from_base64, printable

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

MULTIPART = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
REPLACED = "\N{REPLACEMENT CHARACTER}"


def leaves(message: Message) -> list[Message]:
    """The parts of a message as the standard library sees them, a message in a message as one part."""
    if message.get_content_maintype() == "multipart" and isinstance(message.get_payload(), list):
        return [leaf for part in message.get_payload() for leaf in leaves(part)]  # type: ignore[arg-type]
    return [message]


def test_parts_of_real_mail_are_those_the_standard_library_finds(corpus: list[Path]) -> None:
    compared = 0
    for path in corpus:
        content = path.read_bytes()
        theirs = leaves(email.message_from_bytes(content, policy=compat32))
        if any(part.defects for part in theirs) or len(theirs) == 1:
            continue
        walked = walk(content)
        # Without a sound Content-Type in a digest theirs is message/rfc822 and ours text/plain.
        assert [part.type for part in walked.parts] == [part.get_content_type() for part in theirs], path.name
        compared += 1
    assert compared >= 20


def test_every_real_message_is_rendered(corpus: list[Path]) -> None:
    shown = {path.name: render(path.read_bytes()) for path in corpus}
    assert all(each.parts or each.notes for each in shown.values())
    assert sum(bool(each.text) for each in shown.values()) > len(shown) / 2
    assert all(is_harmless(each.text) for each in shown.values())


def is_harmless(text: str) -> bool:
    return all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", [("text/plain", b"")]),
        (b"no header at all", [("text/plain", b"")]),
        (b"\r\nbody", [("text/plain", b"body")]),
        (b"Subject: x\n\nbody", [("text/plain", b"body")]),
        (b"Subject: x\n\r\nbody", [("text/plain", b"body")]),
        (
            MULTIPART + b"--b\r\n\r\none\r\n--b\r\n\r\ntwo\r\n--b--\r\n",
            [("text/plain", b"one"), ("text/plain", b"two")],
        ),
        (MULTIPART + b"preamble\r\n--b  \t\r\n\r\none\r\n--b-- \r\nepilogue", [("text/plain", b"one")]),
        (MULTIPART + b"--b\r\n\r\nnever closed", [("text/plain", b"never closed")]),
        (MULTIPART + b"--bb\r\n\r\nnone of mine", []),
        # A header without an empty line ends at the next delimiter, and swallows no neighbour.
        (MULTIPART + b"--b\r\nX: y\r\n--b\r\n\r\ntwo\r\n--b--", [("text/plain", b""), ("text/plain", b"two")]),
        (MULTIPART + b"--b\r\n--b\r\n--b--", [("text/plain", b""), ("text/plain", b"")]),
        # An inner part that is not closed ends with its outer part.
        (
            MULTIPART
            + b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nin\r\n--b\r\n\r\nout\r\n--b--",
            [("text/plain", b"in"), ("text/plain", b"out")],
        ),
        # An inner part that takes the outer one's boundary is one part.
        (
            MULTIPART + b"--b\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\nx\r\n--b--",
            [("multipart/mixed", b"x")],
        ),
        # Boundaries that begin alike.
        (
            MULTIPART
            + b'--b\r\nContent-Type: multipart/mixed; boundary="b--"\r\n\r\n--b--\r\n\r\nin\r\n--b\r\n\r\nout',
            [("text/plain", b"in"), ("text/plain", b"out")],
        ),
    ],
)
def test_parts_begin_and_end_at_the_delimiters(content: bytes, parts: list[tuple[str, bytes]]) -> None:
    walked = walk(content)
    assert [(part.type, content[part.start : part.end]) for part in walked.parts] == parts
    assert walked.count == len(parts)


def test_listed_counted_and_nested_parts_are_bounded() -> None:
    many = walk(MULTIPART + b"--b\r\n\r\nx\r\n" * (MOST_PARTS + 5))
    assert (len(many.parts), many.count) == (MOST_PARTS, MOST_PARTS + 5)
    assert walk(MULTIPART + b"--b\r\n" * (2 * MOST_COUNTED)).count == MOST_COUNTED
    assert render(MULTIPART + b"--b\r\n" * (2 * MOST_COUNTED)).notes[0].startswith("100000 parts or more; ")
    level = "Content-Type: multipart/mixed; boundary=b{0}\r\n\r\n--b{0}\r\n"
    nested = walk("".join(level.format(number) for number in range(DEEPEST + 5)).encode() + b"\r\nx\r\n")
    assert nested.deeper
    assert [part.depth for part in nested.parts] == [DEEPEST]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('Content-Disposition: attachment; filename="a b.pdf"', "a b.pdf"),
        ("Content-Type: application/pdf; name=a.pdf", "a.pdf"),
        ("Content-Disposition: attachment; filename*=utf-8''gr%C3%BC%C3%9Fe.pdf", "grüße.pdf"),
        ("Content-Disposition: attachment; filename*0=one; filename*1=two.pdf", "onetwo.pdf"),
        ("Content-Disposition: attachment; filename*0*=utf-8''gr%C3%BC; filename*1*=%C3%9Fe", "grüße"),
        ("Content-Disposition: attachment; filename==?utf-8?b?w6Q=?=", "ä"),
        (
            'Content-Disposition: attachment; filename="../../etc/\x1b[31mpasswd\u202e"',
            f"../../etc/{REPLACED}[31mpasswd{REPLACED}",
        ),
        ("Content-Disposition: attachment; filename*=punycode''" + "a" * 900, "a" * 99 + "…"),
    ],
)
def test_attachments_are_named_safely(header: str, name: str) -> None:
    [part] = render(f"{header}\r\n\r\nx".encode()).parts
    assert part.name == name


def test_a_part_has_a_size_as_it_would_be_saved() -> None:
    content = b"Content-Type: application/pdf; name=a.pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n" + b"AAAA" * 300
    [part] = render(content).parts
    assert part == ShownPart("application/pdf", "a.pdf", 900, attached=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"plain", "plain"),
        (b"=?utf-8?q?gr=C3=BC=C3=9Fe?=", "grüße"),
        (b"=?utf-8?b?w6?= =?utf-8?b?pA==?=", "ä"),  # a character spread over two words
        (b"=?utf-8?q?a?= =?iso-8859-1?q?=E4?= b", "aä b"),
        (b"before =?utf-8*de?q?_x?= after", "before  x after".replace("  ", " ")),
        (b"=?utf-8?b?a?=", ""),  # one digit of base64 is nothing
        (b"=?no-such?q?x?=", "x"),
        (b"=?a\0b?q?x?=", "x"),
        (b"=?unicode_escape?q?=5Cx1b[31m?=", "\\x1b[31m"),
        (b"=?utf-8?q?=1B[31m=0D=0ABcc:_x?=", f"{REPLACED}[31m Bcc: x"),
        (b"=?utf-8?q?never closed", "=?utf-8?q?never closed"),
        (b"a\xff\xe2\x80\xaeb", f"a{REPLACED}{REPLACED}b"),
        ("no\u00a0break".encode(), "no break"),
        (b"x" * 5000, "x" * 499 + "…"),
    ],
)
def test_header_fields_are_decoded_to_one_harmless_line(value: bytes, text: str) -> None:
    assert decoded(value) == text


def test_only_known_text_charsets_are_decoded() -> None:
    assert characters(b"\xe4", "iso-8859-1") == "ä"
    assert characters(b"abc", "zlib") == characters(b"abc", "hex") == characters(b"abc", "idna") == "abc"
    assert from_base64(b"aGVs\r\n bG8") == b"hello"
    assert printable("a\tb\x9b\u2066c") == f"a{REPLACED}b{REPLACED}{REPLACED}c"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>one</p><p>two</p>", "\none\n\ntwo\n"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("a<script>evil('</p>')</script>b<STYLE>p{}</style>c", "abc"),
        ("a<img src='http://t.example/?>x'>d", "ad"),
        ("a<!-- <p>hidden</p> -->b<!doctype html>c<?php x ?>d", "abcd"),
        ("<object/>seen", "seen"),
        ("1 < 2 &amp; 3 &gt; 2 &#65;&#x202e;&nbsp;&copy", "1 < 2 & 3 > 2 A\u202e ©"),
        ("&#" + "9" * 5000 + ";", f"{REPLACED};"),
        ("x\r\ny", "x y"),
        ("a</>b</ c>d</p>e", "abd\ne"),
        ("<a\nhref = 'x>' b=\"y>\" c=z> text</a >", " text"),
        ("<a href='data:," + ">" * 5000 + "'>text", "text"),
    ],
)
def test_html_becomes_its_readable_text(html: str, text: str) -> None:
    assert from_html(html)[0] == text


@pytest.mark.parametrize(
    "html",
    [
        "<b a=x'>PHISH<b a=y'>",  # a quote inside a value without quotes
        "<b a='x'y'>PHISH<b z='>",  # and behind one with quotes
        "<b'x>PHISH<b y'>",  # in the name of a tag
        "<b x'>PHISH<b y'>",  # in the name of an attribute
        "<b ='>PHISH<b x'>",  # an attribute whose name begins with =
        "<b a=\x0b'>PHISH<b x'>",  # a vertical tab is no space in HTML
        "<b a=>PHISH<b x=>",
        "</ a='>PHISH<b x='>",  # a comment, in truth
        "<!doctype a '>PHISH<b x'>",
        "<noscript>PHISH</noscript>",
        "<svg><p>PHISH</p>",
        "<svg><text y=20>PHISH</text></svg>",
        "<svg><style>PHISH</style></svg>",
        "<svg><![CDATA[PHISH]]></svg>",
        "<math><mtext>PHISH</mtext></math>",
        "<object>PHISH</object>",
        "<textarea>PHISH</textarea>",
        "<textarea><b a='</textarea>PHISH<b x='>",
        "<title>x</title-y <b a='</title>PHISH<b x='>",
        "<xmp><style>PHISH</xmp>",
        "<iframe>PHISH</iframe>",
        "<template>PHISH</template>",
        "<style/>PHISH",
        "<!-- --!>PHISH<!-- -->",
        "<!-->PHISH<!-- -->",
        "<!--->PHISH<!-- -->",
        "<!-- PHISH",  # never closed: some mail programs show it
        "<b a='PHISH",
        "<script>PHISH",
        "x" * 600 + "PHISH",
    ],
)
def test_invalid_html_hides_no_text_that_a_mail_program_shows(html: str) -> None:
    shown = render(b"Content-Type: text/html\r\n\r\n<p>Lunch at noon</p>" + html.encode())
    assert "PHISH" in shown.text


@pytest.mark.parametrize(
    ("html", "named"),
    [
        ("<p>a</p><!-- --><!doctype html><style></style><![endif]>", ""),
        ("a<!-- b -->", ", comments"),
        ("<style>p::before{content:'PHISH'}</style>", ", styles"),
        ("<iframe srcdoc='<p>PHISH</p>'></iframe>a", ", embedded documents"),
        ("<object data='data:text/html,PHISH'>a</object>", ", embedded documents"),
        ("<!--[if mso]>PHISH<![endif]--><script>x</script>", ", text for Outlook alone, scripts"),
    ],
)
def test_omitted_parts_of_html_are_named(html: str, named: str) -> None:
    [note] = render(b"Content-Type: text/html\r\n\r\n" + html.encode()).notes
    assert note == f"made from HTML; not shown: links, pictures, fields of forms{named}"


@pytest.mark.parametrize("name", ["svg", "math", "select", "noscript", "![CDATA[]]"])
def test_elements_with_rules_of_their_own_are_named(name: str) -> None:
    notes = render(f"Content-Type: text/html\r\n\r\n<{name}>a</{name}><{name}>".encode()).notes
    assert notes[1:] == (f"there is <{name}>: a mail program may show another text than is shown here",)


def test_the_text_is_the_first_plain_part_that_is_not_attached() -> None:
    content = (
        MULTIPART
        + b"--b\r\nContent-Type: text/html\r\n\r\n<p>html</p>\r\n"
        + b"--b\r\nContent-Disposition: attachment; filename=a.txt\r\n\r\nattached\r\n"
        + b"--b\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        + b"gr=FC=DFe=\r\n!\r\n\r\n\r\n\r\nend\r\n--b--"
    )
    shown = render(content)
    assert shown.text == "grüße!\n\nend"
    assert [part.attached for part in shown.parts] == [False, True, False]
    assert render(b"Content-Type: image/png\r\n\r\nx").notes == ("there is no text to show",)
    long = render(b"Subject: x\r\n\r\n" + b"line\r\n" * 1000)
    assert (len(long.text.splitlines()), long.notes) == (200, ("the text is longer than what is shown",))
    assert fields_of(b"subject: a\r\nSubject: b\r\nFROM: c\r\n\r\nTo: d") == {"From": "c", "Subject": "a"}


@pytest.mark.parametrize("between", [b" " * 960 + b"\r\n ", b" " * 5000 + b"\r\n "])
def test_spaces_hide_no_word_of_a_header_field(between: bytes) -> None:
    words = between.join([b"Our", b"shop", b"of", b"old", b"<evil@evil.example>"])
    shown = render(b"From: " + words + b"\r\n\r\nbody")
    assert shown.header == {"From": "Our shop of old <evil@evil.example>"}
    assert shown.notes == ()


@pytest.mark.parametrize("filling", [b"=?utf-8?q??= " * 200, b"word " * 400, b"word " * 900])
def test_a_truncated_header_field_is_noted(filling: bytes) -> None:
    shown = render(b"Subject: Lunch\r\n " + filling + b"\r\n PHISH\r\n\r\nbody")
    assert shown.header["Subject"].endswith("…")
    assert "Subject is longer than what is shown" in shown.notes


BIG = 16 * 2**20
BOMBS = {
    "a header of one line": b"Subject: x\r\nX: " + b"a" * BIG,
    "a header of many lines": b"X: a\r\n" * (BIG // 6),
    "10,000 parts": MULTIPART + b"--b\r\nContent-Type: text/plain; name=a\r\n\r\nx\r\n" * 10_000,
    "parts without an empty line": MULTIPART + b"\r\n--b\r\nX" * (BIG // 8),
    "parts with LF alone": MULTIPART + b"\n--b\nX: y\n\nz" * (BIG // 12),
    "delimiters and nothing else": MULTIPART + b"\n--b" * (BIG // 4),
    "lines that are nearly delimiters": MULTIPART + b"\n--c" * (BIG // 4),
    "a delimiter with spaces without end": MULTIPART + b"\n--b" + b" " * BIG + b"x",
    "multiparts within each other": b"".join(
        b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n) for n in range(100_000)
    ),
    "multiparts beside each other": MULTIPART
    + b"".join(
        b"--b\r\nContent-Type: multipart/mixed; boundary=c%d\r\n\r\n--c%d\r\n\r\nx\r\n" % (n, n) for n in range(50_000)
    ),
    "parameters without end": MULTIPART + (b"--b\r\nContent-Type: a/b" + b';a="\\"' * 1000 + b"\r\n\r\nx\r\n") * 300,
    "encoded words without end": (b"Subject: " + b"=?a?q? " * 300 + b"\r\n\r\n"),
    "HTML that is all tags": b"Content-Type: text/html\r\n\r\n" + b"<a/" * 40_000,
    "HTML that is all quotes": b"Content-Type: text/html\r\n\r\n" + b'<a ">"' * 20_000,
    "HTML that is all comments": b"Content-Type: text/html\r\n\r\n" + b"<!--" * 40_000,
    "a charset that takes quadratic time": b"Content-Type: text/plain; charset=punycode\r\n\r\n" + b"a" * 65_536,
    "many multiparts": MULTIPART
    + b"".join(b"--b\r\nContent-Type: multipart/mixed; boundary=%d\r\n\r\n" % number for number in range(100_000)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_decompression_or_nesting_bomb_renders_in_bounded_time(bomb: str) -> None:
    began = thread_time()
    shown = render(BOMBS[bomb])
    assert thread_time() - began < 2  # seconds; each takes a tenth at most on two slow cores
    assert len(shown.parts) <= MOST_PARTS
    assert len(shown.text) <= 200 * 501


PHISHING = (
    b"From: a@example.com\r\nSubject: lunch\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n"
    b"--b\r\n\r\nSee you at noon.\r\n"
    b"--b\r\nContent-Type: multipart/related; boundary=c\r\n\r\n"
    b"--c\r\nContent-Type: text/html\r\n\r\n"
    b"<p>Your account is locked: <a href='http://x.example'>log in</a></p>\r\n--c--\r\n"
    b"--b--\r\n"
)


def test_a_hidden_alternative_is_named_and_can_be_rendered() -> None:
    """A mail program shows the HTML, a reviewer saw the harmless text alone."""
    shown = render(PHISHING)
    assert shown.text == "See you at noon."
    assert [note for note in shown.notes if "part 2 (text/html)" in note and "--part 2" in note]
    other = render(PHISHING, 2)
    assert "Your account is locked" in other.text
    assert any("part 1 (text/plain)" in note for note in other.notes)
    assert any("made from HTML" in note for note in other.notes)


@pytest.mark.parametrize("type_", ["image/png", "application/pdf"])
def test_an_alternative_that_is_not_text_is_named(type_: str) -> None:
    """A mail program shows the picture, a reviewer saw the harmless text alone."""
    content = PHISHING.replace(b"text/html", type_.encode())
    assert render(content).notes == (
        f"part 2 ({type_}): an alternative that cannot be shown here; mail programs show one, mostly the last",
    )
    with pytest.raises(NotShown, match=f"part 2 is {type_}"):
        render(content, 2)


@pytest.mark.parametrize("type_", ["application/xhtml+xml", "application/vnd.wap.xhtml+xml"])
def test_xhtml_is_html(type_: str) -> None:
    content = PHISHING.replace(b"text/html", type_.encode())
    assert [note for note in render(content).notes if f"part 2 ({type_})" in note and "--part 2" in note]
    other = render(content, 2)
    assert other.text.strip() == "Your account is locked: log in"
    assert any("made from HTML" in note for note in other.notes)


def test_text_parts_that_are_not_rendered_are_named() -> None:
    content = MULTIPART + b"--b\r\n\r\none\r\n--b\r\nContent-Type: text/html; name=invoice.html\r\n\r\ntwo\r\n--b--\r\n"
    assert [note for note in render(content).notes if note.startswith("part 2 (text/html) is text")]
    many = render(MULTIPART + b"--b\r\n\r\nx\r\n" * 100 + b"--b--\r\n")
    assert len(many.notes) == 6
    assert many.notes[-1].startswith("94 more parts")


@pytest.mark.parametrize("field", ["From", "Subject", "Reply-To", "sUBJECT"])
def test_a_repeated_header_field_is_noted(field: str) -> None:
    content = f"{field}: one\r\nTo: x@y.example\r\n{field}: two\x1b[2J\r\n\r\nbody".encode()
    [note] = render(content).notes
    assert note.lower().startswith(field.lower())
    assert "two" in note
    assert is_harmless(note)
    assert render(content).header[field.title()] == "one"


def test_a_header_longer_than_the_limit_is_noted() -> None:
    assert (
        "the header is longer than what was looked at"
        in render(b"X: y\r\n" * 300 + b"From: a@b.example\r\n\r\n").notes[0]
    )


@pytest.mark.parametrize(
    ("number", "why"), [(0, "part 0 does not exist"), (3, "part 3 does not exist"), (2, "part 2 is image/png")]
)
def test_a_part_that_cannot_be_rendered_is_refused(number: int, why: str) -> None:
    content = MULTIPART + b"--b\r\n\r\none\r\n--b\r\nContent-Type: image/png\r\n\r\ntwo\r\n--b--\r\n"
    with pytest.raises(NotShown, match=why):
        render(content, number)


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Type: text/plain\r\ncontent-type: text/html\r\n",
        b"Content-Type: multipart/mixed; boundary=a\r\nContent-Type : multipart/mixed; boundary=b\r\n",
        b"Content-Transfer-Encoding: 7bit\r\nContent-Transfer-Encoding: base64\r\n",
    ],
)
def test_a_repeated_mime_field_of_the_header_is_noted(header: bytes) -> None:
    """One mail program reads the body by the first of them, another by the last."""
    said = render(header + b"\r\n--a\r\n\r\nharmless\r\n--a--\r\n--b\r\n\r\nphish\r\n--b--\r\n").notes
    assert any("is there again" in note for note in said)
    assert not any("is there again" in note for note in render(header.partition(b"\r\n")[0] + b"\r\n\r\nx").notes)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (b"Content-Type: multipart/mixed; boundary=a; boundary=b", "gives boundary more than once"),
        (b'Content-Type: multipart/mixed; boundary=a; BOUNDARY="b"', "gives boundary more than once"),
        (b"Content-Type: multipart/mixed; boundary=a; boundary*=us-ascii''b", "gives boundary in a form"),
        (b"Content-Type: multipart/mixed; boundary*0=a; boundary*1=b", "gives boundary in a form"),
        (b"Content-Type: text/plain; charset=utf-7; charset=us-ascii", "gives charset more than once"),
        (b"Content-Type: text/plain; name=a.txt; name=b.html", "gives name more than once"),
        (b"Content-Disposition: inline; filename=a.txt; filename=b.html", "gives filename more than once"),
        (b"Content-Type: multipart/mixed (; boundary=a); boundary=b", "mail programs read differently"),
        (b"Content-Type: text/plain; a=" + b"x" * 5000 + b"; charset=utf-7", "mail programs read differently"),
        (b"Content-Type: html", "mail programs read differently"),
        (b"Content-Transfer-Encoding: base64 (really)", "not one that every mail program knows"),
    ],
)
def test_an_ambiguous_mime_field_is_noted(field: bytes, why: str) -> None:
    """One mail program reads the body by the first of two parameters, another by the last."""
    body = b"\r\n\r\n--a\r\n\r\nharmless\r\n--a--\r\n--b\r\n\r\nphish\r\n--b--\r\n"
    assert [note for note in render(field + body).notes if why in note and not note.startswith("in a part")]
    outer = b"Content-Type: multipart/mixed; boundary=outer\r\n\r\n--outer\r\n" + field + body + b"\r\n--outer--\r\n"
    assert [note for note in render(outer).notes if why in note and note.startswith("in a part")]


@pytest.mark.parametrize(
    "fields",
    [
        b"Content-Type: text/plain\r\nContent-Type: text/html\r\n",
        b"Content-Transfer-Encoding: 7bit\r\ncontent-transfer-encoding: base64\r\n",
        b"Content-Type: multipart/mixed; boundary=c\r\nContent-Type: multipart/mixed; boundary=d\r\n",
    ],
)
def test_a_repeated_mime_field_of_a_part_is_noted(fields: bytes) -> None:
    content = MULTIPART + b"--b\r\n" + fields + b"\r\n--c\r\n\r\nx\r\n--c--\r\n--b--\r\n"
    [note] = [note for note in render(content).notes if "is there again" in note]
    assert note.startswith("in a part")
    once = content.replace(fields.split(b"\r\n", 1)[1], b"\r\n", 1)
    assert not [note for note in render(once).notes if "is there again" in note]


def test_text_outside_the_parts_is_quoted_in_a_note() -> None:
    inner = b"Content-Type: multipart/mixed; boundary=c\r\n\r\nin\x1b[2Jner\r\n--c\r\n\r\nx\r\n--c--\r\nbelow\r\n"
    content = MULTIPART + b"pre amble\r\n--b\r\n" + inner + b"--b--\r\nepilogue\r\n\r\n--b\r\n\r\nhidden\r\n"
    notes = [note for note in render(content).notes if note.startswith("before the first part or behind the last")]
    assert [note.partition('"')[2] for note in notes] == [
        'pre amble"',
        f'in{REPLACED}[2Jner"',
        'below"',
        'epilogue --b hidden"',
    ]
    assert all(is_harmless(note) for note in notes)
    assert render(MULTIPART + b"\r\n \r\n--b\r\n\r\none\r\n--b--\r\n\r\n \r\n").notes == ()
    lost = render(MULTIPART + b"--bb\r\n\r\nnone of mine").notes
    assert any("none of mine" in note for note in lost)


def test_an_undivided_message_or_multipart_is_named_and_can_be_rendered() -> None:
    """Mail programs show a message within the message, and some show a multipart without a boundary as text."""
    for type_ in (b"message/rfc822", b"multipart/mixed"):
        content = (
            MULTIPART + b"--b\r\n\r\none\r\n--b\r\nContent-Type: " + type_ + b"\r\n\r\nA: b\r\n\r\ntwo\r\n--b--\r\n"
        )
        assert [note for note in render(content).notes if "--part 2" in note]
        assert "two" in render(content, 2).text


@pytest.mark.parametrize(("body", "sound"), [(b"aGVs\r\nbG8=\r\n", True), (b"aGVs=\r\nbG8=", False), (b"!aGVs", False)])
def test_ambiguous_base64_is_noted(body: bytes, *, sound: bool) -> None:
    notes = render(b"Content-Transfer-Encoding: base64\r\n\r\n" + body).notes
    assert bool(notes) is not sound


def test_valid_real_mail_has_no_notes(corpus: list[Path]) -> None:
    sound = [path for path in corpus if not path.name.startswith("error_emails")]
    doubtful = [path.name for path in sound if walk(path.read_bytes()).doubts]
    assert len(sound) > 50
    assert doubtful == ["attachment_emails-attachment_with_unquoted_name.eml"]
