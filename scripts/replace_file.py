"""replace_file — replaces a file in one step, so that no reader sees half of one

Guarantees: the new text is on disk before it takes the name. The file keeps its owner and rights, as far as this user
    may give them; a link stays one, and the file that it leads to is replaced. What is not a regular file, such as
    /dev/null, is left alone.
Raises: OSError; then nothing has changed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from scripts import rights

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def replace(file: Path, text: str, *, mode: int = 0o666, like: Path | None = None) -> None:
    """Give the file this text. mode, like: as for `drafted`."""
    with drafted(file, text, mode=mode, like=like):
        pass


@contextmanager
def drafted(file: Path, text: str, *, mode: int = 0o666, like: Path | None = None) -> Iterator[Path]:
    """A draft beside the file, to be tried in the block; it takes the file's place if the block ends without an error.

    mode: of a new file, of which the umask takes some. like: a new file has the rights of one beside this file, or in
    this folder (scripts/rights.py).
    """
    file = file.resolve()
    kept = _kept(file, like)
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, kept.mode if kept else mode)
        with os.fdopen(opened, "w", encoding="utf-8") as stream:
            rights.give(opened, kept)
            stream.write(text)
            stream.flush()
            os.fsync(opened)
        yield draft
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)


def _kept(file: Path, like: Path | None) -> rights.Rights | None:
    """Whose the file is to be, if that is known."""
    with suppress(FileNotFoundError):
        present = file.stat()
        if not stat.S_ISREG(present.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(file))
        return rights.Rights(present.st_uid, present.st_gid, stat.S_IMODE(present.st_mode))
    return None if like is None else rights.like(like)
