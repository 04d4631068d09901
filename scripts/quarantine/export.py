"""export — `pillarbox quarantine export`: held messages as .eml files, exactly as they were submitted

Owns: the verb; the names of files and their writing.
Guarantees: a name is made of the message's id alone, never of its content. Nothing is overwritten and no link is
    followed; a file has its name only when it is whole. Read and written piece by piece. Never to a terminal, on which
    a message might act.
Raises: PillarboxError for errors that a reviewer can correct.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Literal
from uuid import uuid4

from operate.quarantine import content
from scripts.options import finish
from scripts.output import records
from scripts.output.interrupted import telling
from scripts.quarantine.reviewing import narrow
from scripts.queue.act import progress
from scripts.queue.query import add_condition, run
from shared import masking
from shared.config.smtpd.load import load_smtpd
from shared.errors import PillarboxError
from shared.how_many import how_many

if TYPE_CHECKING:
    import argparse
    from uuid import UUID

    from operate.queue.query import Query
    from shared.postgres import database

_PORTION: Final = 200


def add_verbs(under: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    verb = under.add_parser("export", help="held messages as .eml files, one for each message")
    add_condition(verb, all_=True)
    verb.add_argument(
        "--to",
        type=Path,
        metavar="DIR",
        help="into this folder, which is made if it is missing; without it one message to stdout",
    )
    verb.set_defaults(verb="export")
    finish(verb, export, acting=True)


def export(options: argparse.Namespace) -> int:
    """Write what fits."""
    settings = load_smtpd(options.config / "smtpd.yaml")
    folder: Path | None = options.to
    if folder is None and sys.stdout.isatty():
        raise PillarboxError("quarantine export: a message could act on this terminal: redirect it, or give --to DIR")
    if folder is not None:
        _make(folder)

    async def go(connection: database.Connection) -> Counter[str]:
        asking = (await narrow(connection, settings, options)).asking
        messages = await _messages(connection, asking)
        if folder is None:
            if len(messages) != 1:
                found = how_many(len(messages), "message matches", "messages match")
                raise PillarboxError(f"quarantine export: {found}; standard output takes one: use --to DIR")
            if not await _copy(connection, messages[0], sys.stdout.buffer):
                raise PillarboxError(f"quarantine export: message {messages[0]} has no body")
            sys.stdout.buffer.flush()
            return Counter(written=1)
        counted = Counter(written=0, present=0, bodiless=0)
        with telling(lambda: _said(counted)), progress("exported", len(messages), quiet=options.json) as bar:
            for message in messages:
                counted[await _file(connection, message, folder)] += 1
                bar.advance(bar.task_ids[0])
        return counted

    counted = run(options, go)
    if folder is not None and options.json:
        records.one(counted)
    elif folder is not None:
        present = f"; skipped because the file exists: {counted['present']}" if counted["present"] else ""
        bodiless = f"; without a body: {counted['bodiless']}" if counted["bodiless"] else ""
        print(f"written: {counted['written']}{present}{bodiless}")
    return 0


def _said(counted: Counter[str]) -> str:
    return f"wrote {how_many(counted['written'], 'message')}, each whole; the same command does the rest"


def _make(folder: Path) -> None:
    """Make the folder, which only its owner can read, unless it is there."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        raise PillarboxError(f"--to: {masking.show(str(folder))} is not a folder") from None
    except OSError as error:
        raise PillarboxError(f"--to: {masking.show(str(folder))}: {error.strerror}") from None


async def _messages(connection: database.Connection, asking: Query) -> list[UUID]:
    """The messages of the recipients that fit, each once."""
    found: dict[UUID, None] = {}
    after = 0
    while rows := await asking.fetch(connection, "quarantine_mail", after=after, limit=_PORTION, most=0):
        found |= dict.fromkeys(row.message for row in rows)
        after = rows[-1].id
    return list(found)


async def _file(
    connection: database.Connection, message: UUID, folder: Path
) -> Literal["written", "present", "bodiless"]:
    """Write one message unless it is there."""
    final, unfinished = folder / f"{message}.eml", folder / f".{message}.{uuid4().hex}.part"
    try:
        if _is_there(final):
            return "present"
        with _created(unfinished) as file:
            if not await _copy(connection, message, file):
                return "bodiless"
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, final)  # refuses where something is
    except FileExistsError:
        return "present"
    except OSError as error:
        raise PillarboxError(f"--to: {masking.show(str(folder))}: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    return "written"


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)  # a link that leads nowhere is there, too


def _created(path: Path) -> BinaryIO:
    """A new file that only its owner may read."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


async def _copy(connection: database.Connection, message: UUID, file: BinaryIO) -> bool:
    """Copy a message piece by piece; whether there is one."""
    start = 1
    while True:
        piece = await content.piece(connection, message, start)
        if piece is None and start == 1:
            return False
        if piece is None:
            raise PillarboxError(f"quarantine export: message {message} went away while it was read")
        file.write(piece)
        if len(piece) < content.PIECE:
            return True
        start += content.PIECE
