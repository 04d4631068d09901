"""test_bounce_read — a malformed report is read or ignored, and does no harm

Owns: properties of queued/reports/read.py on reports that were cut, repeated and overwritten.
"""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from queued.reports.read import read

DSN: Final = (
    b"From: MAILER-DAEMON@peer.example\r\n"
    b'Content-Type: multipart/report; report-type=delivery-status; boundary="x"\r\n\r\n'
    b"--x\r\nContent-Type: text/plain\r\n\r\nAlas.\r\n"
    b"--x\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; peer.example\r\n\r\n"
    b"Original-Recipient: rfc822; a@b.example\r\nFinal-Recipient: utf-8; \\x{E4}@b.example\r\n"
    b"Action: failed\r\nStatus: 5.1.1\r\nDiagnostic-Code: smtp; 550 5.1.1 nobody\r\n"
    b"--x\r\nContent-Type: message/rfc822\r\n\r\n"
    b"Received: by mx.test\r\n\tid 019a2b3c-0000-7000-8000-000000000001\r\nSubject: x\r\n\r\nbody\r\n--x--\r\n"
)
ARF: Final = DSN.replace(b"message/delivery-status", b"message/feedback-report").replace(
    b"Reporting-MTA: dns; peer.example", b"Feedback-Type: abuse\r\nOriginal-Rcpt-To: <a@b.example>"
)
PIECES: Final = st.sampled_from(
    [
        b"\r\n\r\n",
        b"\n",
        b"--x",
        b"--x--",
        b"\x00",
        b"\xff\xfe",
        b":",
        b";",
        b"boundary=",
        b"Content-Type: message/rfc822\r\n",
    ]
)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A report with some places cut out, repeated or overwritten."""
    content = draw(st.sampled_from([DSN, ARF]))
    for _ in range(draw(st.integers(1, 6))):
        at, length = draw(st.integers(0, len(content))), draw(st.integers(0, 80))
        middle = draw(st.one_of(st.just(b""), PIECES, st.binary(max_size=20), st.just(content[at : at + length] * 2)))
        content = content[:at] + middle + content[at + length :]
    return content


@settings(max_examples=300)
@given(broken())
def test_a_malformed_report_yields_bounded_printable_findings(content: bytes) -> None:
    report = read(content)
    if report is None:
        return
    assert len(report.findings) <= 100
    for finding in report.findings:
        assert finding.reason.isprintable()
        assert all("\n" not in address for address in finding.recipients)
        assert report.kind == "arf" or finding.status is not None


@settings(max_examples=200)
@given(st.binary(max_size=2000))
def test_any_octets_are_read_without_error(content: bytes) -> None:
    read(content)
    read(b"Content-Type: multipart/report; boundary=x\r\n\r\n--x\r\n" + content)


def test_a_deeply_nested_message_is_read_in_bounded_time() -> None:
    deep = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\r\n\r\n--%d\r\n' % (n, n) for n in range(5000))
    assert read(deep) is None
    assert read(b"Content-Type: message/rfc822\r\n\r\n" * 20000) is None
