"""test_events — an event is one line with any values, and the table lists exactly the emitted events

Owns: proofs about shared/observe/events.py and shared/observe/events_table.py, and about every `emit` in the sources.
"""

from __future__ import annotations

import ast
import io
import logging
import re
import shlex
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from shared.observe.events import Line, emit, quote, setup
from shared.observe.events_table import DEBUG, ERROR, EVENTS, INFO, WARNING
from smtpd.connection import proxy_header
from tests.layout.sources import PACKAGES, python_files, tree

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
HOSTILE = ["\x1b[2J", "\0", "\x7f", "\x9b", "\u202e", "\u200b", "\ufeff", "\ud800", "\t"]


def line_of(event: str, **fields: object) -> str:
    record = logging.LogRecord("pillarbox", logging.INFO, "", 0, event, None, None)
    record.fields = fields
    return Line().format(record)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The log of this process, set up as the daemons do it."""
    root, ours, mail = (logging.getLogger(name) for name in (None, "pillarbox", "mail"))
    before = (root.handlers[:], root.level, ours.level, mail.level)
    setup("info")
    written = io.StringIO()
    [handler] = root.handlers
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(written)
    yield written
    root.handlers[:] = before[0]
    for logger, level in zip((root, ours, mail), before[1:], strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("hostile", LINE_ENDS + HOSTILE, ids=ascii)
@pytest.mark.parametrize("around", ["a{}b", "{}", 'a "{}" b', "a={}"])
def test_a_value_is_one_printable_word(around: str, hostile: str) -> None:
    quoted = quote(around.format(hostile))
    assert len(quoted.splitlines()) == 1
    assert quoted.isprintable()
    assert len(shlex.split(quoted)) == 1


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("plain", "plain"),
        ("a.b-c:d/e@f", "a.b-c:d/e@f"),
        ("münchen", "münchen"),
        ("two words", '"two words"'),
        ("", '""'),
        ('say "x"', r'"say \"x\""'),
        ("a=b", '"a=b"'),
        ("back \\slash", r'"back \\slash"'),
        ("new\nline", r'"new\nline"'),
        ("bell\x07", r'"bell\x07"'),
        ("\u2028", r'"\u2028"'),
        (7, "7"),
        (1.23456, "1.235"),
        (True, "True"),
        (ValueError("x y"), '"x y"'),
    ],
)
def test_values_are_quoted(value: object, quoted: str) -> None:
    assert quote(value) == quoted


def test_two_values_never_look_alike() -> None:
    values = ["a\nb", "a\\nb", 'a"b', 'a\\"b', "a\\\\b c", "a\\b c", "", '""', " ", "\\ x", "\\\\ x"]
    assert len({quote(value) for value in values}) == len(values)


def test_a_line_is_logfmt_without_fields_of_none() -> None:
    line = line_of("spool.committed", id="x", held=None, sender="a b\nfake line", seconds=0.5)
    stamp, level, event, *fields = shlex.split(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", stamp)
    assert abs(datetime.fromisoformat(stamp) - datetime.now(UTC)).total_seconds() < 60
    assert (level, event) == ("info", "spool.committed")
    assert fields == ["id=x", "sender=a b\\nfake line", "seconds=0.500"]


def test_an_event_reaches_the_log_at_its_level(log: io.StringIO) -> None:
    emit("spool.committed", id="x")
    emit("spool.group", messages=1)  # DEBUG: below the configured level
    emit("daemon.failed", part="p", error="e")
    assert [line.split(" ")[1:3] for line in log.getvalue().splitlines()] == [
        ["info", "spool.committed"],
        ["error", "daemon.failed"],
    ]


def test_log_records_of_libraries_are_one_line(log: io.StringIO) -> None:
    try:
        int("first\nsecond")
    except ValueError:
        logging.getLogger("somebody").exception("went\nwrong")
    [line] = log.getvalue().splitlines()
    assert '"went\\nwrong"' in line
    assert "trace=" in line


def test_an_unknown_event_is_refused() -> None:
    with pytest.raises(KeyError, match=r"spool\.unheard_of"):
        emit("spool.unheard_of")


def emitted() -> dict[str, list[str]]:
    """Every event name that the sources emit, and where; {} in an f-string stands for any word."""
    found: dict[str, list[str]] = {}
    for path in python_files(*PACKAGES):
        for node in ast.walk(tree(path)):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func) in {"events.emit", "emit"}):
                continue
            name = node.args[0]
            if isinstance(name, ast.Constant):
                text = str(name.value)
            else:
                assert isinstance(name, ast.JoinedStr), (
                    f"{path}:{node.lineno}: the name of an event is a literal in the call"
                )
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in name.values)
            found.setdefault(text, []).append(f"{path}:{node.lineno}")
    return found


def fits(name: str, pattern: str) -> bool:
    return bool(re.fullmatch(re.escape(pattern).replace(r"\{\}", "[a-z_]+"), name))


def test_every_event_in_the_sources_is_in_the_table() -> None:
    unknown = {name: where for name, where in emitted().items() if not any(fits(known, name) for known in EVENTS)}
    assert unknown == {}


def test_every_event_in_the_table_is_emitted_somewhere() -> None:
    names = emitted()
    assert [known for known in EVENTS if not any(fits(known, name) for name in names)] == []


@pytest.mark.parametrize("event", EVENTS)
def test_each_event_has_a_level_and_a_meaning(event: str) -> None:
    level, meaning = EVENTS[event]
    assert re.fullmatch(r"[a-z_]+\.[a-z_]+", event)
    assert level in {DEBUG, INFO, WARNING, ERROR}
    assert meaning.endswith(".")
    assert meaning.isprintable()


@pytest.mark.parametrize("header", [b"PROXY TCP4 x y 1 2\r\n", b"PROXY\r\n", b"PROXY TCP4 \x1b[2J x 1 2\r\n"])
async def test_an_invalid_proxy_header_is_logged_by_our_events_only(log: io.StringIO, header: bytes) -> None:
    """aiosmtpd, which parses it, logs warnings with the octets of the client."""
    with pytest.raises(proxy_header.ProxyRefused):
        await proxy_header.peer(header)
    assert log.getvalue() == ""
