"""test_demo_reports_a_clean_ledger — `make demo` ends with every message accounted for

Owns: `pillarbox demo` as a program, and the proof that its ledger reports a loss, a duplicate or a change.
See: scripts/demo/command.py, scripts/demo/ledger.py.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import TYPE_CHECKING

import pytest

from scripts.demo.ledger import Ledger
from shared.postgres.embedded import embedded
from tests.fixtures.daemons.system import ROOT
from tests.fixtures.servers.postgres import temporary_var

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FIGURES = re.compile(r"accepted=(\d+) delivered=(\d+) lost=0 duplicated=0 altered=0")
HEADER = b"Received: from a ([192.0.2.1])\r\n\tby b with ESMTP\r\n\tid c; now\r\n"
CONTENT = b"Received: from the one before\r\n\tus\r\nSubject: s\r\n\r\nx\r\n"
WHO = ("n@origin.example", "R@Oak.example")


async def run_demo(var: Path, *arguments: str) -> tuple[int, list[str]]:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scripts.cli", "demo", "--var", str(var), *arguments),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(120):
        out, _ = await demo.communicate()
    assert demo.returncode is not None
    return demo.returncode, out.decode().splitlines()


@pytest.mark.slow
async def test_generated_mail_is_all_accounted_for() -> None:
    with temporary_var() as var:
        status, lines = await run_demo(var / "demo", "--messages", "60")
        assert embedded.status(var / "demo") is None
    found = FIGURES.fullmatch(lines[-1])
    assert found, "\n".join(lines)
    assert found[1] == found[2]
    assert int(found[1]) >= 60
    assert status == 0


@pytest.mark.slow
async def test_real_mail_is_all_accounted_for(corpus: list[Path]) -> None:
    with temporary_var() as var:
        status, lines = await run_demo(var / "demo", "--mail", str(corpus[0].parent))
    found = FIGURES.fullmatch(lines[-1])
    assert found, "\n".join(lines)
    assert found[1] == found[2]
    assert int(found[1]) >= len(corpus)
    assert status == 0


@pytest.mark.slow
async def test_mail_without_an_end_of_header_is_not_counted_as_altered(tmp_path: Path) -> None:
    (tmp_path / "text.eml").write_bytes(b"This is no header field\r\nnor is this\r\n")
    # A space at the very beginning would continue a field of ours, so an empty line precedes it.
    (tmp_path / "blank.eml").write_bytes(b"  This is no header field either\r\n\r\nbody\r\n")
    (tmp_path / "usual.eml").write_bytes(b"Subject: s\r\n\r\nbody\r\n")
    with temporary_var() as var:
        status, lines = await run_demo(var / "demo", "--mail", str(tmp_path))
    found = FIGURES.fullmatch(lines[-1])
    assert found, "\n".join(lines)
    assert status == 0
    ended = re.fullmatch(r"(\d+) of them had a header that no empty line ends, and arrived with one .*", lines[-2])
    assert ended, "\n".join(lines)
    assert 1 <= int(ended[1]) < int(found[1])


@pytest.mark.parametrize(
    ("submitted", "arrived", "altered", "ended"),
    [
        (b"text\r\n", b"\r\ntext\r\n", 0, 1),
        (b"A: b\r\n c\r\ntext\r\n", b"A: b\r\n c\r\n\r\ntext\r\n", 0, 1),
        (b"text\r\n", b"text\r\n", 0, 0),  # if endofheader is accept
        (b"text\r\n", b"\r\n\r\ntext\r\n", 1, 0),
        (b"A: b\r\n\r\ntext\r\n", b"A: b\r\n\r\n\r\ntext\r\n", 1, 0),
        (b"A: b\r\n\r\ntext\r\n", b"\r\nA: b\r\n\r\ntext\r\n", 1, 0),
    ],
)
def test_only_the_missing_empty_line_is_allowed_as_alteration(
    submitted: bytes, arrived: bytes, altered: int, ended: int
) -> None:
    ledger = Ledger()
    ledger.accept(*WHO, submitted)
    ledger.arrive(*WHO, HEADER + arrived)
    account = ledger.account()
    assert (account.altered, account.ended, account.clean) == (altered, ended, not altered)


def _once(ledger: Ledger) -> None:
    ledger.arrive(*WHO, HEADER + CONTENT)


def _early(ledger: Ledger) -> None:
    """The sink may have it before the submitter has read its 250."""
    ledger.accepted.clear()
    ledger.arrive(*WHO, HEADER + CONTENT)
    ledger.accept(*WHO, CONTENT)


def _never(ledger: Ledger) -> None:
    del ledger


def _to_another(ledger: Ledger) -> None:
    ledger.arrive(WHO[0], "other@oak.example", HEADER + CONTENT)


def _twice(ledger: Ledger) -> None:
    _once(ledger)
    _once(ledger)


def _without_a_line(ledger: Ledger) -> None:
    ledger.arrive(*WHO, HEADER + CONTENT.replace(b"\tus\r\n", b""))


def _with_the_trace_header_behind(ledger: Ledger) -> None:
    ledger.arrive(*WHO, CONTENT + HEADER)


def _with_two_headers(ledger: Ledger) -> None:
    ledger.arrive(*WHO, HEADER + HEADER + CONTENT)


@pytest.mark.parametrize(
    ("happened", "figures", "clean"),
    [
        (_once, "accepted=1 delivered=1 lost=0 duplicated=0 altered=0", True),
        (_early, "accepted=1 delivered=1 lost=0 duplicated=0 altered=0", True),
        (_never, "accepted=1 delivered=0 lost=1 duplicated=0 altered=0", False),
        (_to_another, "accepted=1 delivered=0 lost=1 duplicated=0 altered=0", False),
        (_twice, "accepted=1 delivered=1 lost=0 duplicated=1 altered=0", False),
        (_without_a_line, "accepted=1 delivered=1 lost=0 duplicated=0 altered=1", False),
        (_with_the_trace_header_behind, "accepted=1 delivered=1 lost=0 duplicated=0 altered=1", False),
        (_with_two_headers, "accepted=1 delivered=1 lost=0 duplicated=0 altered=1", False),
    ],
)
def test_the_ledger_counts_every_fate(happened: Callable[[Ledger], None], figures: str, *, clean: bool) -> None:
    ledger = Ledger()
    ledger.accept(*WHO, CONTENT)
    happened(ledger)
    assert str(ledger.account()) == figures
    assert ledger.account().clean is clean
