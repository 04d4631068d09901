"""test_sendmail — the command submits to a real smtpd, keeps what it cannot submit, and loses nothing when it is killed

Owns: proofs about exit statuses, the spool and its flush, and a kill at each step.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from scripts.sendmail import spool
from scripts.sendmail.command import DATA, NO_USER, OK, TEMPORARY, UNAVAILABLE, USAGE
from scripts.sendmail.message import Outgoing
from tests.fixtures.daemons.serving import serving
from tests.fixtures.database.operating import ROOT
from tests.fixtures.peers.free_port import free_port
from tests.fixtures.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fixtures.database.factory import Factory

MAIL: Final = b"To: bob@example.net\nBcc: eve@example.org\nSubject: hello\n\n.dot\nbody\n"
#: Python code that ends the process by SIGKILL at the call of a function of os, counted from 1.
_KILLED: Final = """
import os, signal, sys
from scripts import cli
name, number = {name!r}, {number}
true, calls = getattr(os, name), 0
def counted(*words, **more):
    global calls
    calls += 1
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
    return true(*words, **more)
setattr(os, name, counted)
sys.exit(cli.main(sys.argv[1:]))
"""


class Sendmail:
    """The command. folder: its spool; port: where smtpd is, or should be."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.said = self.refused = b""
        folder.mkdir(exist_ok=True)

    async def start(self, *words: str, program: tuple[str, ...] = ("-m", "scripts.cli")) -> asyncio.subprocess.Process:
        """Start it."""
        own = ("--server", f"127.0.0.1:{self.port}", "--spool", str(self.folder), "--domain", "host.example")
        return await asyncio.create_subprocess_exec(
            *(sys.executable, *program, "sendmail", *own, *words),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    async def __call__(self, *words: str, octets: bytes = MAIL, **more: Any) -> int:
        """Run it to its end; the exit status."""
        process = await self.start(*words, **more)
        async with asyncio.timeout(PATIENCE):
            self.said, self.refused = await process.communicate(octets)
        assert process.returncode is not None
        return process.returncode

    def kept(self) -> list[Outgoing]:
        """The whole messages of the spool."""
        found = []
        for path in spool.waiting(self.folder):
            with spool.taken(path) as kept:
                if kept:
                    found.append(kept.message)
        return found


@pytest.fixture
async def away(tmp_path: Path) -> Sendmail:
    """The command where no smtpd listens."""
    return Sendmail(tmp_path / "spool", free_port())


@asynccontextmanager
async def to_smtpd(database: str, tmp_path: Path) -> AsyncIterator[Sendmail]:
    async with serving(database) as port:
        yield Sendmail(tmp_path / "spool", port)


def recipients(factory: Factory) -> list[str]:
    rows = factory.queue()
    return sorted(f"{row.recipientlocalpart}@{row.recipientdomain}" for row in rows)


async def test_mail_is_in_the_queue_when_the_status_is_zero(database: str, factory: Factory, tmp_path: Path) -> None:
    async with to_smtpd(database, tmp_path) as sendmail:
        assert await sendmail("-t", "-i", "-f", "ann") == OK, sendmail.refused
        assert recipients(factory) == ["bob@example.net", "eve@example.org"]
        [row] = factory.sql("SELECT content FROM pillarbox.messages")
        assert b"eve@" not in row.content
        assert row.content.endswith(b"\r\n\r\n.dot\r\nbody\r\n")
        assert {row.senderdomain for row in factory.queue()} == {"host.example"}
        assert sendmail.kept() == []
        # What smtpd refuses for one recipient is sent to none, and the caller has it still.
        assert await sendmail("carol@example.net", "no@@example.net", "-i") in {DATA, NO_USER}
        assert await sendmail("-t", octets=b"Subject: x\n\n") == DATA
        assert b"a recipient is missing" in sendmail.refused
        for address in ("ann@host.example>\r\nRCPT TO:<eve@example.org", '"a\r\nb"@example.net', "@example.net"):
            assert await sendmail("-i", "-f", address, "bob@example.net") == DATA
            assert await sendmail("-i", "--", address) == DATA, address
            assert b"is not an address" in sendmail.refused
        assert await sendmail("-bd") == USAGE
        assert len(factory.queue()) == 2


async def test_smtp_passes_through(database: str, factory: Factory, tmp_path: Path) -> None:
    lines = ("EHLO me", "MAIL FROM:<a@example.com>", "RCPT TO:<b@example.net>", "DATA")
    async with to_smtpd(database, tmp_path) as sendmail:
        process = await sendmail.start("-bs")
        assert process.stdin is not None
        assert process.stdout is not None
        greeting = await process.stdout.readline()
        for line in (*lines, "Subject: x\r\n\r\nbody\r\n.", "QUIT"):
            process.stdin.write(line.encode() + b"\r\n")
            while (reply := await process.stdout.readline())[3:4] == b"-":
                pass
        assert (greeting[:3], reply[:3]) == (b"220", b"221")
        assert await process.wait() == OK
    assert recipients(factory) == ["b@example.net"]


async def test_without_smtpd_mail_waits_on_disk_and_is_flushed(
    away: Sendmail, database: str, factory: Factory, tmp_path: Path
) -> None:
    assert await away("-t", "-i") == OK
    assert await away("-i", "dan@example.net") == OK
    assert [message.recipients for message in away.kept()] == [
        ("bob@example.net", "eve@example.org"),
        ("dan@example.net",),
    ]
    assert await away("-bp") == OK
    assert b"to bob@example.net, eve@example.org\n" in away.said
    assert await away("--flush") == TEMPORARY
    assert len(away.kept()) == 2
    async with to_smtpd(database, tmp_path) as there:
        flushes = await asyncio.gather(*(there.start("--flush") for _ in range(3)))
        assert [await each.wait() for each in flushes] == [OK] * 3
        assert recipients(factory) == ["bob@example.net", "dan@example.net", "eve@example.org"]
        assert list(there.folder.iterdir()) == []


async def test_notifications_are_asked_for_also_through_the_spool(
    away: Sendmail, database: str, factory: Factory, tmp_path: Path
) -> None:
    asked = ("-N", "success,failure", "-R", "hdrs", "-V", "a+b", "-i")
    assert await away(*asked, "dan@example.net") == OK
    async with to_smtpd(database, tmp_path) as there:
        assert await there("--flush") == OK
        assert await there(*asked, "eve@example.net") == OK
        assert await there("-N", "never", "bob@example.net") == OK
    found = {row.recipientlocalpart: row.metadata["_dsn"] for row in factory.queue()}
    every = {"ret": "HDRS", "envid": "a+b", "notify": ["FAILURE", "SUCCESS"]}
    assert found == {"dan": every, "eve": every, "bob": {"notify": ["NEVER"]}}


async def test_a_message_is_sent_or_refused_whatever_the_options(
    database: str, factory: Factory, tmp_path: Path
) -> None:
    """Status 0 without a message in the queue would lose it."""
    async with to_smtpd(database, tmp_path) as sendmail:
        for options in (("-eq",), ("-q30m",), ("-o", "i"), ("-em", "-v")):
            assert await sendmail(*options, "bob@example.net") == OK, options
        for options in (("-q",), ("-qRexample.net",), ("-bp",), ("-bi",), ("-I",), ("-bs",), ("-XV",)):
            assert await sendmail(*options, "bob@example.net") == USAGE, options
    assert recipients(factory) == ["bob@example.net"] * 4


async def test_without_smtpd_and_spool_nothing_is_kept_and_the_status_says_so(away: Sendmail) -> None:
    away.folder.rmdir()
    assert await away("-t") == TEMPORARY
    assert b"nothing was kept" in away.refused


async def test_spooled_mail_that_smtpd_refuses_is_kept_for_a_person(
    away: Sendmail, database: str, factory: Factory, tmp_path: Path
) -> None:
    assert await away("-i", "x" * 100 + "@example.net") == OK
    assert await away("-i", "dan@example.net") == OK
    async with to_smtpd(database, tmp_path) as there:
        assert await there("--flush") == UNAVAILABLE
        assert b"refused, and kept: " in there.refused
        assert recipients(factory) == ["dan@example.net"]
        assert [path.name.partition(".")[0] for path in spool.waiting(there.folder)] == ["refused"]
        assert await there("--flush") == OK


@pytest.mark.parametrize(("name", "number"), [("open", 1), ("write", 1), ("write", 2), ("fsync", 1), ("fsync", 2)])
async def test_killed_while_it_writes_the_spool_it_has_promised_nothing(away: Sendmail, name: str, number: int) -> None:
    code = _KILLED.format(name=name, number=number)
    assert await away("-t", "-i", program=("-c", code)) == -signal.SIGKILL
    # A file that is whole may be sent, and no other.
    assert len(away.kept()) == (1 if name == "fsync" else 0)
    assert await away("-t", "-i") == OK
    assert MAIL.partition(b"\n\n")[2].replace(b"\n", b"\r\n") in away.kept()[-1].content


@pytest.mark.parametrize("stop", ["EHLO", "MAIL", "RCPT", "DATA", "."])
async def test_killed_at_each_command_it_leaves_nothing_behind(tmp_path: Path, stop: str) -> None:
    async with stalling(stop) as (port, stalled):
        sendmail = Sendmail(tmp_path / "spool", port)
        process = await sendmail.start("-i", "bob@example.net")
        assert process.stdin is not None
        process.stdin.write(MAIL)
        process.stdin.close()
        await asyncio.wait_for(stalled.wait(), PATIENCE)
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        assert list(sendmail.folder.iterdir()) == []


@pytest.mark.parametrize("stop", ["EHLO", "MAIL", "RCPT", "DATA", "."])
async def test_a_connection_that_breaks_at_any_command_costs_no_mail(tmp_path: Path, stop: str) -> None:
    async with stalling(stop, hang_up=True) as (port, _):
        sendmail = Sendmail(tmp_path / "spool", port)
        assert await sendmail("-i", "bob@example.net") == OK
        assert [message.recipients for message in sendmail.kept()] == [("bob@example.net",)]


async def test_more_recipients_than_smtpd_takes_at_once_are_divided(
    database: str, factory: Factory, tmp_path: Path
) -> None:
    many = [f"r{n}@example.net" for n in range(5)]
    async with serving(database, server={"phases": {"rcptto": {"maxrecipients": 2}}}) as port:
        sendmail = Sendmail(tmp_path / "spool", port)
        # The last one is refused: the others have not been sent yet.
        assert await sendmail("-i", *many, "x" * 100 + "@example.net") == NO_USER
        assert factory.queue() == []
        assert await sendmail("-i", *many) == OK, sendmail.refused
    assert recipients(factory) == many
    [row] = factory.sql("SELECT count(*) AS messages, count(DISTINCT msgid) AS ids FROM pillarbox.messages")
    assert (row.messages, row.ids) == (3, 1)
    assert sendmail.kept() == []


async def test_of_a_divided_message_only_what_smtpd_lacks_is_kept(tmp_path: Path) -> None:
    many = tuple(f"r{n}@example.net" for n in range(5))
    async with stalling(".", hang_up=True, after=1, most=2) as (port, _):
        sendmail = Sendmail(tmp_path / "spool", port)
        assert await sendmail("-i", *many) == OK
        assert [message.recipients for message in sendmail.kept()] == [many[2:]]
    async with stalling(".", hang_up=True, after=1, most=2) as (port, _):
        sendmail.port = port
        assert await sendmail("--flush") == TEMPORARY
        [message] = sendmail.kept()
        assert message.recipients == many[4:]
        [path] = sendmail.folder.iterdir()
        assert path.name.encode() in sendmail.refused
        path.unlink()
    async with stalling(".", hang_up=True, after=1, most=2) as (port, _):
        sendmail.port = port
        process = await sendmail.start("-i", *many)
        sendmail.folder.rmdir()  # it has read no message yet
        _, refused = await process.communicate(MAIL)
        assert process.returncode == TEMPORARY
        assert f"smtpd has it for all but {', '.join(many[2:])}; ".encode() in refused


async def test_a_message_that_smtpd_has_accepted_is_not_kept_because_of_its_reply_to_quit(tmp_path: Path) -> None:
    async with stalling("NEVER") as (port, _):
        sendmail = Sendmail(tmp_path / "spool", port)
        assert await sendmail("-i", "bob@example.net") == OK
        assert list(sendmail.folder.iterdir()) == []


async def test_killed_between_250_and_its_removal_a_spooled_message_is_sent_twice_with_one_message_id(
    away: Sendmail, database: str, factory: Factory, tmp_path: Path
) -> None:
    assert await away("-i", "dan@example.net") == OK
    async with to_smtpd(database, tmp_path) as there:
        code = _KILLED.format(name="unlink", number=1)
        assert await there("--flush", program=("-c", code)) == -signal.SIGKILL
        assert await there("--flush") == OK
    assert len(recipients(factory)) == 2
    assert factory.one("SELECT count(DISTINCT msgid) FROM pillarbox.messages") == 1


def test_links_and_other_things_in_the_spool_are_left_alone(tmp_path: Path) -> None:
    message = Outgoing("", ("a@example.net",), b"x\r\n")
    path = spool.keep(tmp_path, message)
    os.link(path, tmp_path / "elsewhere")
    with spool.taken(path) as kept:
        assert kept is None
    (tmp_path / "elsewhere").unlink()
    link = tmp_path / f"message.{'0' * 32}"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic link"), spool.taken(link):
        pass
    os.mkfifo(fifo := tmp_path / f"message.{'1' * 32}")
    with spool.taken(fifo) as kept:
        assert kept is None
    with spool.taken(path) as kept:
        assert kept is not None
        assert kept.message == message
        with spool.taken(path) as second:
            assert second is None


def test_a_message_that_is_sent_while_the_spool_is_read_is_passed_over(tmp_path: Path) -> None:
    path = spool.keep(tmp_path, Outgoing("", ("a@example.net",), b"x\r\n"))

    class Folder:
        def iterdir(self) -> list[Path]:
            return [tmp_path / f"message.{'0' * 32}", path]

    assert spool.waiting(Folder()) == [path]  # type: ignore[arg-type]


async def test_the_list_goes_on_behind_an_entry_that_cannot_be_read(away: Sendmail) -> None:
    assert await away("-i", "dan@example.net") == OK
    (away.folder / f"message.{'0' * 32}").symlink_to("elsewhere")
    # Any user may write into the spool, also what would act on a terminal.
    spool.keep(away.folder, Outgoing("\x1b[2J", ("a@example.net",), b"x\r\n"))
    assert await away("-bp") == OK
    assert b"\x1b" not in away.said
    assert b"> to dan@example.net\n" in away.said
    assert f"message.{'0' * 32}  ".encode() in away.said


def test_what_was_not_finished_goes_after_a_day(tmp_path: Path) -> None:
    path = spool.keep(tmp_path, Outgoing("", ("a@example.net",), b"x\r\n"))
    path.write_bytes(path.read_bytes()[:-1])
    with spool.taken(path) as kept:
        assert kept is None
    assert path.exists()
    os.utime(path, (0, 0))
    with spool.taken(path) as kept:
        assert kept is None
    assert not path.exists()


@asynccontextmanager
async def stalling(
    stop: str, *, hang_up: bool = False, after: int = 0, most: int = 100
) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """An SMTP server that does not answer this command, or hangs up at it; set once it has come.

    after: how often it answers the command before. most: recipients at once. QUIT gets 421, as from one that stops.
    """
    stalled = asyncio.Event()
    left = after

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        writer.write(b"220 peer\r\n")
        content, recipients = False, 0
        while line := await reader.readline():
            word = line.partition(b" ")[0].strip().decode().upper()
            if content and line != b".\r\n":
                continue
            if word == stop:
                left -= 1
                if left < 0:
                    stalled.set()
                    if hang_up:
                        break
                    continue
            content = word == "DATA"
            recipients = recipients + 1 if word == "RCPT" else 0
            codes = {"DATA": 354, "QUIT": 421} | ({"RCPT": 452} if recipients > most else {})
            writer.write(b"%d said\r\n" % codes.get(word, 250))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], stalled
