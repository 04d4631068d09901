"""test_schedule_mail — an operator's input becomes a valid message, or a one-line error

Owns: proofs about operate/settings/schedule_mail.py and scripts/commands/schedule_mail.py.
"""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from operate.settings import schedule_mail
from scripts import input_file
from scripts.commands.schedule_mail import read_mail
from shared.errors import PillarboxError

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PLAIN = b"Subject: x\r\n\r\nbody\r\n"


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (PLAIN, PLAIN),
        (b"Date: Sat, 21 Nov 2026 12:00:00 +0000\r\n" + PLAIN, PLAIN),
        (b"Subject: x\r\nMESSAGE-ID: <a@b>\r\n\r\nbody\r\n", PLAIN),
        (b"Message-ID:\r\n <a@b>\r\n\t(folded)\r\ndate : x\r\n" + PLAIN, PLAIN),
        # Similar fields stay.
        (b"X-Date: x\r\nResent-Message-ID: y\r\n\r\nDate: in the body\r\n", None),
        (b"\r\nDate: a body alone\r\n", None),
        (b"Subject: x\r\n Date: folded\r\n\r\n", None),
    ],
)
def test_only_date_and_message_id_are_removed(content: bytes, left: bytes | None) -> None:
    assert schedule_mail.recurring(content) == (content if left is None else left)


def test_a_file_is_read_with_the_line_ends_of_mail(tmp_path: Path) -> None:
    file = tmp_path / "mail.eml"
    file.write_bytes(b"Subject: x\n\nbody")
    mail = read_mail("a@b.example", ["c@d.example"], str(file))
    assert (mail.sender, mail.recipients, mail.content) == ("a@b.example", ("c@d.example",), PLAIN)
    assert not mail.smtputf8


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))
    assert read_mail("", ["c@d.example"], "-").content == PLAIN
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("file", ["-", "/dev/zero"])
def test_a_file_without_an_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.setattr(input_file, "_LONGEST", 10)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(PLAIN)))
    with pytest.raises(PillarboxError, match=f'^--file: "{file}": longer than 10B$'):
        read_mail("", ["c@d.example"], file)


def test_at_a_terminal_one_line_says_what_is_read_and_how_it_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = io.TextIOWrapper(io.BytesIO(PLAIN))
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert read_mail("", ["c@d.example"], "-").content == PLAIN
    said = capsys.readouterr()
    assert (said.out, said.err) == (
        "",
        "pillarbox: type the message, its header first; Ctrl-D on a line of its own ends it\n",
    )


@pytest.mark.parametrize(
    ("sender", "recipient", "content", "needed"),
    [
        ("a@b.example", "c@d.example", "Subject: x\r\n\r\nüber\r\n", False),
        ("ä@b.example", "c@d.example", "Subject: x\r\n\r\n", True),
        ("a@b.example", "c@dä.example", "Subject: x\r\n\r\n", True),
        ("a@b.example", "c@d.example", "Subject: ü\r\n\r\n", True),
        ("a@b.example", "c@d.example", "Subject: ü\r\n", True),
    ],
)
def test_smtputf8_is_set_only_for_international_addresses_and_headers(
    sender: str, recipient: str, content: str, *, needed: bool
) -> None:
    assert schedule_mail.Mail(sender, (recipient,), content.encode()).smtputf8 is needed


@pytest.mark.parametrize(
    ("sender", "recipient", "content", "says"),
    [
        ("a", "c@d.example", PLAIN, '--from: "a": address has no domain; allowed: local-part@domain'),
        ("a@b.example", "", PLAIN, '--to: "": address has no domain'),
        ("a@b.example", "c d@e", PLAIN, '--to: "c d@e": bad local-part'),
        ("a@b.example", "c@d.example\r\nBcc: x", PLAIN, "--to: .*control characters"),
        ("a@b.example", "c@d.example", b" \r\n", "--file: .* is empty; allowed"),
        ("a@b.example", "c@d.example", b"a\0b", "--file: .* NUL; allowed"),
        ("a@b.example", "c@d.example", None, "--file: .* No such file or directory"),
    ],
)
def test_invalid_mail_is_refused_with_its_option(
    tmp_path: Path, sender: str, recipient: str, content: bytes | None, says: str
) -> None:
    file = tmp_path / "mail.eml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PillarboxError, match=f"^{says}") as refused:
        read_mail(sender, [recipient], str(file))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "timezone", "expected"),
    [
        ("2026-12-24T18:00", "UTC", "2026-12-24T18:00:00+00:00"),
        ("2026-12-24 18:00", "Europe/Berlin", "2026-12-24T17:00:00+00:00"),
        ("2026-12-24T18:00+01:00", "America/New_York", "2026-12-24T17:00:00+00:00"),
        ("2026-12-24T18:00Z", "Europe/Berlin", "2026-12-24T18:00:00+00:00"),
        # Twice on that night: the first one.
        ("2027-10-31T02:30", "Europe/Berlin", "2027-10-31T00:30:00+00:00"),
    ],
)
def test_a_time_without_offset_is_in_the_time_zone(text: str, timezone: str, expected: str) -> None:
    assert schedule_mail.instant(text, timezone, NOW).isoformat() == expected


@pytest.mark.parametrize(
    ("text", "timezone", "says"),
    [
        ("tomorrow", "UTC", '--at: "tomorrow" is not a time; allowed'),
        ("9999-12-31T23:59", "America/New_York", '--at: "9999-12-31T23:59" is not a time; allowed'),
        ("9999-12-31T23:59-12:00", "UTC", '--at: "9999-12-31T23:59-12:00" is not a time; allowed'),
        ("2026-11-21T12:00", "UTC", "--at: .* has passed; allowed"),
        ("2027-03-28T02:30", "Europe/Berlin", "--at: .* does not exist in Europe/Berlin"),
        ("2027-03-28T02:30", "Berlin", '--timezone: "Berlin" is not a time zone; allowed'),
    ],
)
def test_an_impossible_time_is_refused(text: str, timezone: str, says: str) -> None:
    with pytest.raises(PillarboxError, match=f"^{says}"):
        schedule_mail.instant(text, timezone, NOW)


def test_the_first_occurrence_is_found_or_the_wrong_option_named() -> None:
    assert schedule_mail.first_occurrence("0 9 * * mon", "UTC", NOW).isoformat() == "2026-11-23T09:00:00+00:00"
    with pytest.raises(PillarboxError, match=r"^--every: "):
        schedule_mail.first_occurrence("daily", "UTC", NOW)
    with pytest.raises(PillarboxError, match=r"^--timezone: "):
        schedule_mail.first_occurrence("0 9 * * mon", "here", NOW)
