"""test_content — valid content, repaired content, and the bounded cost of both

Owns: examples for smtpd/message/content.py.
See: RFC 5321 sections 2.3.8, 6.3; RFC 5322 sections 2.1, 2.2; RFC 8689 section 3.
"""

from __future__ import annotations

import asyncio
import re
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest

from shared.config.smtpd.content import DataPhase
from smtpd.envelope.parameters import MailParameters, Refused
from smtpd.message.content import CheckedContent, Header, check, first_empty_line, read_header, without

if TYPE_CHECKING:
    from collections.abc import Awaitable

HOSTNAME = "mx.example"


async def checked(content: bytes, asked: MailParameters | None = None, **settings: Any) -> CheckedContent:
    return await check(content, asked or MailParameters(), DataPhase.model_validate(settings), HOSTNAME)


async def refusal(checking: Awaitable[CheckedContent]) -> str:
    with pytest.raises(Refused) as refused:
        await checking
    return refused.value.reply


def header(content: bytes, **settings: Any) -> Header:
    return read_header(content, DataPhase.model_validate(settings), HOSTNAME)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b"\r\nbody\r\n",
        b"Subject: x\r\n\r\nbody\r\n",
        b"Subject: x\r\n folded\r\n\r\n",
        b"only a body\r\n",
        b"Subject: 8\r\n\r\n" + bytes(range(128, 256)) + b"\r\n",
        b"Subject: long\r\n\r\n" + b"x" * 300_000 + b"\r\n",
        b"x" * 300_000,
        b"Subject: x\r\n" + b"\r\n" * 200_000,
        b"x" * ((1 << 18) - 1) + b"\r\nx\r\n",
        b"Subject: no end of line",
    ],
)
async def test_valid_content_is_unchanged(content: bytes) -> None:
    passed = await checked(content)
    assert passed.content is content
    assert passed.seam == b""


@pytest.mark.parametrize(
    "octets",
    [b"\n", b"\r", b"\n.\n", b"\n.\r\n", b"\r.\r", b"\r\n.\r", b"\n\r", b"\r\r\n", b"\r\n\n"],
)
@pytest.mark.parametrize("before", [b"", b"x", b"y" * ((1 << 18) - 1), b"y" * (1 << 18)])
async def test_a_bare_cr_or_lf_is_refused_or_normalized(octets: bytes, before: bytes) -> None:
    content = b"\r\n" + before + octets + b"x\r\n"
    assert await refusal(checked(content)) == "554 5.6.0 Bare CR or LF in message, lines end with CR LF"
    mended = await checked(content, barenewline="normalize")
    assert mended.content == re.sub(rb"\r?\n|\r", b"\r\n", content)


async def test_nul_is_refused_at_any_position() -> None:
    for content in (b"\0", b"Subject: \0\r\n\r\n", b"\r\n" + b"x" * 600_000 + b"\0\r\n"):
        assert (await refusal(checked(content))).startswith("554 5.6.0 NUL")


async def test_binarymime_may_contain_any_octet() -> None:
    """RFC 3030 section 3."""
    content = b"Subject: x\r\n\r\n\0\n\r"
    assert (await checked(content, MailParameters(body="BINARYMIME"))).content == content


async def test_normalizing_must_not_exceed_the_size_limit() -> None:
    reply = await refusal(checked(b"\r\n" + b"\n" * 60, barenewline="normalize", maxsize=100))
    assert reply.startswith("552 5.3.4")


async def test_undeclared_8bit_content_is_refused_if_configured() -> None:
    body, field = b"Subject: x\r\n\r\n\xe9\r\n", "Subject: é\r\n\r\nx\r\n".encode()
    assert (await refusal(checked(body, eightbit="reject"))).startswith("554 5.6.3 ")
    assert (await refusal(checked(field, MailParameters(body="8BITMIME"), eightbit="reject"))).startswith("554 5.6.7 ")
    await checked(body, MailParameters(body="8BITMIME"), eightbit="reject")
    await checked(field, MailParameters(smtputf8=True), eightbit="reject")


async def test_the_line_length_may_be_limited() -> None:
    for length, fits in ((100, True), (101, False)):
        for content in (b"\r\n" + b"x" * length, b"a\r\n" * 50 + b"x" * length + b"\r\nb\r\n"):
            if fits:
                await checked(content, maxlinelength=100)
            else:
                assert (await refusal(checked(content, maxlinelength=100))).startswith("554 5.6.0 Line is longer")


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        (b"no header\r\n", b"\r\nno header\r\n"),
        (b"Subject: x\r\nno field\r\n", b"Subject: x\r\n\r\nno field\r\n"),
        (b"Subject: x\r\n\r\nFrom the body\r\n", b"Subject: x\r\n\r\nFrom the body\r\n"),
        (b"Subject: x\r\n", b"Subject: x\r\n"),
        (b" folded first\r\n", b"\r\n folded first\r\n"),
    ],
)
async def test_a_header_without_an_empty_line_is_accepted_fixed_or_refused(content: bytes, stored: bytes) -> None:
    assert (await checked(content)).content == content
    fixed = await checked(content, endofheader="fix")
    accepted = await checked(content)
    assert (accepted.seam + accepted.content == stored) is (stored == content or content.startswith(b" "))
    assert fixed.seam + fixed.content == stored
    if stored != content:
        assert (await refusal(checked(content, endofheader="reject"))).startswith("554 5.6.0 Header")


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"Subject: x\r\n\r\n", 0),
        (b"Received: x\r\n", 1),
        (b"Received: x\r\n\tby y\r\nRECEIVED : z\r\nreceived:w\r\n\r\nbody\r\n", 3),
        (b"Subject: x\r\n\r\nReceived: in the body\r\n", 0),
        (b"Received: x\r\n\r\nReceived: y\r\n\r\nReceived: z\r\n", 1),
        (b"X-Received: x\r\n Received: folded\r\nReceived-SPF: pass\r\n\r\n", 0),
        (b"\r\nReceived: the header is empty, this is the body\r\n\r\nmore\r\n", 0),
        (b"no field\r\nReceived: some read on here\r\n", 1),
        (b"no field\r\n\r\nReceived: in the body\r\n", 0),
        (b" \r\nReceived: x\r\nmore\r\nReceived: y\r\n folded\r\n\r\nReceived: z\r\n", 2),
    ],
)
def test_hops_are_counted_by_received_fields_of_the_header(content: bytes, count: int) -> None:
    assert header(content).hops == count


def test_loops_are_counted_by_received_fields_that_name_us() -> None:
    ours = b"Received: from x (y [192.0.2.1])\r\n\tby MX.example with ESMTP\r\n\tid 1; now\r\n"
    other = b"Received: from mx.example (y [192.0.2.1])\r\n\tby other.mx.example with ESMTP; now\r\n"
    found = header((ours + other) * 4 + b"\r\n")
    assert (found.hops, found.loops) == (8, 4)
    with pytest.raises(Refused, match="Too many hops"):
        header(ours * 5 + b"\r\n")
    assert header(ours * 5 + b"\r\n", maxloops=5).loops == 5
    with pytest.raises(Refused, match="Too many hops"):
        header(other * 51 + b"\r\n")


def test_a_header_has_limits() -> None:
    with pytest.raises(Refused, match="Header field is too large"):
        header(b"Subject: " + b"x" * 102_400 + b"\r\n\r\n")
    with pytest.raises(Refused, match="Header field is too large"):
        header(b"Subject: x\r\n" + b" folded\r\n" * 20_000, maxheaderlines=100_000)
    with pytest.raises(Refused, match="Header has more than 1000 lines"):
        header(b"a: b\r\n" * 1001 + b"\r\n")
    header(b"a: b\r\n" * 1000 + b"\r\n")
    wide = b"a: " + b"b" * 10_000 + b"\r\n"
    header(wide * 104 + b"\r\n")
    with pytest.raises(Refused, match="Header is larger than 1048576 octets"):
        header(wide * 105 + b"\r\n")
    header(b"\r\n" + wide * 105)
    header(b"\r\n" + b"x" * 200_000)


@pytest.mark.parametrize("torn", [b" \r\n", b"\t, <boss@example.com>\r\n", b"no field\r\n", b"a: b\r\nno field\r\n"])
@pytest.mark.parametrize("between", [b"", b"text\r\n"])
@pytest.mark.parametrize("ending", ["accept", "fix"])
def test_a_malformed_line_does_not_end_the_header_limits(torn: bytes, between: bytes, ending: str) -> None:
    with pytest.raises(Refused, match="Too many hops"):
        header(torn + (b"Received: x\r\n" + between) * 51 + b"\r\n", endofheader=ending)
    with pytest.raises(Refused, match="Header has more than 1000 lines"):
        header(torn + b"a: b\r\n" * 1001 + b"\r\n", endofheader=ending)
    with pytest.raises(Refused, match="Header field is too large"):
        header(torn + b"a: " + b"x" * 102_400 + b"\r\n\r\n", endofheader=ending)
    found = header(torn + b"From: x\r\nTLS-Required: No\r\n\r\n", endofheader=ending)
    assert (b"from" in found.names, found.tls_optional) == (False, False)
    header(torn + b"text\r\n" * 100_000)  # no header at all, and long


def test_the_first_empty_line_ends_the_header() -> None:
    for content in (
        b"",
        b"\r\n",
        b"\n",
        b"a: b",
        b"a: b\r\n",
        b"a: b\r\n\r\nc",
        b"a: b\n\nc\r\n\r\n",
        b"\r\na\r\n\r\n",
    ):
        lines = re.split(rb"(?<=\n)", content)
        expected = next((n for n, line in enumerate(lines) if line in {b"\r\n", b"\n"}), len(lines))
        assert first_empty_line(content) == len(b"".join(lines[:expected]))


@pytest.mark.parametrize(
    ("field", "optional"),
    [
        (b"TLS-Required: No\r\n", True),
        (b"tls-required:\r\n no\r\n", True),
        (b"TLS-Required: Yes\r\n", False),
        (b"Subject: TLS-Required: No\r\n", False),
        (b"\r\nTLS-Required: No\r\n", False),
    ],
)
def test_tls_may_be_declared_optional_by_the_header(field: bytes, *, optional: bool) -> None:
    assert header(field + b"\r\n").tls_optional is optional


async def test_checking_large_content_does_not_block_the_loop() -> None:
    content = b"Subject: large\r\n\r\n" + (b"x" * 76 + b"\r\n") * 250_000

    async def longest() -> float:
        """Of the turns of the loop meanwhile, in processor time: other programs share this machine."""
        found, stop = 0.0, asyncio.Event()

        async def others() -> None:
            nonlocal found
            while not stop.is_set():
                before = process_time()
                await asyncio.sleep(0)
                found = max(found, process_time() - before)

        other = asyncio.create_task(others())
        await checked(content, eightbit="reject", maxlinelength=998)
        stop.set()
        await other
        return found

    assert min([await longest() for _ in range(3)]) < 0.01  # garbage may be collected during one of them


@pytest.mark.parametrize(
    ("start", "filling", "end"),
    [
        (b"", b"\r\n", b""),
        (b"a:", b" \r\n ", b"\r\n"),
        (b"Received: ", b"by ", b"\r\n\r\n"),
        (b"Received: x by", b"  ", b";\r\n\r\n"),
        (b"\r\n", b"x", b""),
    ],
    ids=["lines", "folds", "words", "blanks", "line"],
)
async def test_content_is_checked_in_linear_time(start: bytes, filling: bytes, end: bytes) -> None:
    async def seconds(times: int) -> float:
        content = start + filling * times + end
        before = process_time()
        for _ in range(5):
            await checked(content, maxheadersize="1GiB", maxheaderlines=1_000_000, maxlinelength=1_000_000)
        return process_time() - before

    small, large = await seconds(10_000), await seconds(100_000)
    assert large < 0.1 + 30 * small  # ten times as much, with room for noise; quadratic would be a hundred times


DROPPED = DataPhase().dropheaders


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (b"Bcc: x@y.z\r\nSubject: x\r\n\r\nBcc: body\r\n", b"Subject: x\r\n\r\nBcc: body\r\n"),
        (b"Subject: x\r\nbCC : a,\r\n b,\r\n\tc\r\nTo: d\r\n\r\n", b"Subject: x\r\nTo: d\r\n\r\n"),
        (b"Return-Path: <a@b.c>\r\nBcc:\r\nResent-Bcc: d\r\nContent-Length: 3\r\n\r\nab\r\n", b"\r\nab\r\n"),
        (b"Bcc: x\r\n", b""),
        (b"Bcc: x", b""),
        (b"To: a\r\nBcc: x", b"To: a\r\n"),
        (b"To: a\r\nBcc: x\r\nno field\r\nBcc: y\r\n\r\n", b"To: a\r\nno field\r\nBcc: y\r\n\r\n"),
        (b"Bcc: x\r\nno field\r\n", b"no field\r\n"),
        (b"Bcc: x\nTo: a\n\nbody\n", b"To: a\n\nbody\n"),
        (b"Bcc: x\r\n\r\n" + b"y" * 300_000, b"\r\n" + b"y" * 300_000),
    ],
)
async def test_some_fields_do_not_go_on(content: bytes, left: bytes) -> None:
    found = without(
        await checked(content, barenewline="normalize") if b"\n\n" not in content else parsed(content), DROPPED
    )
    assert found.content == left
    assert found.header.end == header(left).end
    assert found.header.names == header(left).names


def parsed(content: bytes) -> CheckedContent:
    """The content as it is, with LF at the ends of its lines."""
    return CheckedContent(content, header(content))


@pytest.mark.parametrize(
    "content", [b"", b"To: a\r\n\r\nBcc: x\r\n", b"X-Bcc: x\r\nBc: c\r\n\r\n", b"text\r\nBcc: x\r\n"]
)
async def test_other_content_goes_on_unchanged(content: bytes) -> None:
    passed = await checked(content)
    assert without(passed, DROPPED) is passed


async def test_the_fields_to_drop_can_be_chosen() -> None:
    content = b"Bcc: x\r\nMessage-ID: <a@b>\r\nX-Internal: y\r\n\r\n"
    limits = DataPhase.model_validate({"dropheaders": ["X-Internal", "Message-ID"]})
    found = without(await checked(content), limits.dropheaders)
    assert (found.content, found.header.kept) == (b"Bcc: x\r\n\r\n", {})
