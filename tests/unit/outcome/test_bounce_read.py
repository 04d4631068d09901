"""test_bounce_read — bounces and feedback reports, standard and non-standard"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from queued.reports.read import Finding, IncomingReport, read
from tests.fixtures.processor import least_seconds

if TYPE_CHECKING:
    from pathlib import Path

MESSAGE = UUID("019a2b3c-0000-7000-8000-000000000001")

DSN = b"""Return-Path: <>\r
From: MAILER-DAEMON@peer.example\r
Content-Type: multipart/report; report-type=delivery-status; boundary="x"\r
\r
--x\r
Content-Type: text/plain\r
\r
Alas.\r
--x\r
Content-Type: message/delivery-status\r
\r
Reporting-MTA: dns; peer.example\r
Original-Envelope-Id: 7\r
\r
Original-Recipient: rfc822; Joe@example.com\r
Final-Recipient: rfc822;joe@inner.example\r
Action: failed (for good)\r
Status: 5.0.0\r
Diagnostic-Code: smtp; 550 5.1.1 <joe@inner.example>:\r
 no such user\r
\r
Final-Recipient: rfc822; late@example.com\r
Action: delayed\r
Status: 4.4.1\r
\r
Final-Recipient: rfc822; full@example.com\r
Action: failed\r
Status: 5.2.2\r
--x\r
Content-Type: message/rfc822\r
\r
Return-Path: <b-1-2@bounces.example>\r
Received: from app ([192.0.2.1])\r
\tby mx.test with ESMTP\r
\tid 019a2b3c-0000-7000-8000-000000000001\r
\tfor <joe@example.com>; Sat, 21 Nov 2026 10:00:00 +0000\r
Subject: hello\r
\r
Final-Recipient: rfc822; innocent@example.com\r
--x--\r
"""

# RFC 5965 appendix B.1 and B.2, with the fields in question.
ARF = b"""From: <abusedesk@example.com>\r
Date: Thu, 8 Mar 2005 17:40:36 EDT\r
Subject: FW: Earn money\r
To: <abuse@example.net>\r
MIME-Version: 1.0\r
Content-Type: multipart/report; report-type=feedback-report;\r
     boundary="part1_13d.2e68ed54_boundary"\r
\r
--part1_13d.2e68ed54_boundary\r
Content-Type: text/plain; charset="US-ASCII"\r
Content-Transfer-Encoding: 7bit\r
\r
This is an email abuse report for an email message received from IP\r
192.0.2.1 on Thu, 8 Mar 2005 14:00:00 EDT.\r
\r
--part1_13d.2e68ed54_boundary\r
Content-Type: message/feedback-report\r
\r
Feedback-Type: abuse\r
User-Agent: SomeGenerator/1.0\r
Version: 1\r
Original-Mail-From: <somespammer@example.net>\r
Original-Rcpt-To: <user@example.com>\r
Arrival-Date: Thu, 8 Mar 2005 14:00:00 EDT\r
Source-IP: 192.0.2.1\r
\r
--part1_13d.2e68ed54_boundary\r
Content-Type: message/rfc822\r
Content-Disposition: inline\r
\r
Received: from mailserver.example.net\r
     (mailserver.example.net [192.0.2.1])\r
     by example.com with ESMTP id M63d4137594e46;\r
     Thu, 08 Mar 2005 14:00:00 -0400\r
From: <somespammer@example.net>\r
To: <Undisclosed Recipients>\r
Subject: Earn money\r
\r
Spam Spam Spam\r
--part1_13d.2e68ed54_boundary--\r
"""


def sample(corpus: list[Path], name: str) -> bytes:
    [path] = [each for each in corpus if each.name == name]
    return path.read_bytes()


def test_a_standard_bounce_is_read() -> None:
    report = read(DSN)
    assert report == IncomingReport(
        "bounce",
        None,
        (
            Finding(("Joe@example.com", "joe@inner.example"), "5.1.1", "550 5.1.1 <joe@inner.example>: no such user"),
            Finding(("full@example.com",), "5.2.2", "5.2.2"),
        ),
        (MESSAGE,),
        ("b-1-2@bounces.example",),
    )


def test_a_standard_feedback_report_is_read() -> None:
    report = read(ARF)
    assert report is not None
    assert (report.kind, report.feedback) == ("arf", "abuse")
    assert report.findings == (Finding(("user@example.com",), None, "feedback report: abuse"),)
    assert report.return_paths == ("somespammer@example.net",)
    assert read(ARF.replace(b"Feedback-Type: abuse\r\n", b"")) is None


def test_a_feedback_report_may_omit_the_recipient() -> None:
    report = read(ARF.replace(b"Original-Rcpt-To: <user@example.com>\r\n", b""))
    assert report is not None
    assert report.findings[0].recipients == ()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("multipart_report_emails-report_530.eml", [("edwin@zzzzzzz.com", "5.3.0")]),
        ("multipart_report_emails-multi_address_bounce1.eml", None),
        ("multipart_report_emails-multi_address_bounce2.eml", None),
    ],
)
def test_real_bounces_are_read(corpus: list[Path], name: str, expected: list[tuple[str, str]] | None) -> None:
    report = read(sample(corpus, name))
    assert report is not None
    found = [(finding.recipients[0].lower(), finding.status) for finding in report.findings]
    assert found
    assert expected is None or found == expected


def test_a_delay_report_is_not_a_failure(corpus: list[Path]) -> None:
    report = read(sample(corpus, "multipart_report_emails-report_422.eml"))
    assert report is None or all((finding.status or "").startswith(("4.", "5.")) for finding in report.findings)
    only_late = DSN.replace(b"Action: failed", b"Action: delayed")
    assert read(only_late) is not None
    assert read(only_late).findings == ()  # type: ignore[union-attr]


OLD = (
    b"From: MAILER-DAEMON\r\nSubject: failure notice\r\n\r\nHi. I could not deliver.\r\n\r\n%s\r\n\r\n"
    b"--- Below: id 019a2b3c-0000-7000-8000-000000000001\r\n"
)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"<joe@example.com>: 550 5.1.1 no such user", "5.1.1"),
        (b"<joe@example.com>: 451 4.1.1 later", None),
        (b"<joe@example.com>: no such user", None),
        (b"<joe@example.com> and <ann@example.com>: 550 5.1.1", None),
        (b"<joe@example.com>: 5.1.1\r\n<ann@example.com>: 5.1.1", None),
        (b"<joe@example.com>: see http://192.5.1.1.7/", None),
    ],
)
def test_an_old_style_bounce_must_be_unambiguous(line: bytes, status: str | None) -> None:
    report = read(OLD % line)
    if status is None:
        assert report is None
    else:
        assert report is not None
        assert [(f.recipients, f.status) for f in report.findings] == [(("joe@example.com",), status)]
        assert report.ids == (MESSAGE,)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\r\n",
        b"Subject: x\r\n\r\nOrdinary mail.\r\n",
        b"Content-Type: multipart/report; boundary=x\r\n\r\n" * 100,
        b"Content-Type: message/rfc822\r\n\r\n" * 5000,
        b"Content-Type: multipart/report; boundary=x\r\n\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\n"
        + b"a:b\n\n" * 50000,
        DSN.replace(b"utf-8", b"x-none").replace(b"text/plain", b"text/plain; charset=nonesuch"),
        b"Content-Type: multipart/mixed; boundary=\xff\xfe\r\n\r\n--\xff\xfe\r\n",
    ],
)
def test_other_mail_is_not_read_as_a_report(content: bytes) -> None:
    report = read(content)
    assert report is None or len(report.findings) <= 100


def _nested(depth: int) -> bytes:
    return b"".join(b'Content-Type: multipart/mixed; BOUNDARY="%d"\n\n--%d\n' % (i, i) for i in range(depth))


@pytest.mark.parametrize(
    "bomb",
    [
        b"Content-Type: message/delivery-status\n\n" + b"\n" * 300_000,
        b"Content-Type: message/delivery-status\r\r" + b"\r" * 300_000,
        _nested(400) + b"\n" * 300_000,
        b'Content-Type: multipart/report; a="' + b";" * 200_000 + b"\n\n",
        b"Content-Type: message/feedback-report\n\na: " + b" b; " * 60_000 + b"\n\n",
        b"Content-Type: message/feedback-report\n\n" + (b"a: " + b"\xff, " * 600 + b"\n") * 130,
    ],
)
def test_every_message_is_read_in_bounded_time(bomb: bytes) -> None:
    assert least_seconds(lambda: read(bomb)) < 0.8  # each took seconds before lines, BOUNDARY and fields were bounded
