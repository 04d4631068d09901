"""rights — whose a new private file is: as the file beside it, or, if root makes it, as the folder that it is in

Guarantees: a place that is open to others lends nothing, and the file is its maker's alone. Only root gives files away;
    for others, what they may not give stays theirs, and a folder whose group has more members lends nothing.
Raises: OSError.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

#: The mode of a new file that only its owner may read.
PRIVATE: Final = 0o600
_OTHERS: Final = 0o007
_READ_AND_WRITE: Final = 0o660


class Rights(NamedTuple):
    """Owner and group, by number, and mode."""

    owner: int
    group: int
    mode: int


def like(place: Path) -> Rights | None:
    """Those of a file beside this file, or of one that root makes in this folder; None if the place lends nothing."""
    model = place.stat()
    if model.st_mode & _OTHERS or (stat.S_ISDIR(model.st_mode) and os.geteuid()):
        return None
    return Rights(model.st_uid, model.st_gid, stat.S_IMODE(model.st_mode) & _READ_AND_WRITE)


def give(opened: int, rights: Rights | None) -> None:
    """Give these to an open file, as far as this user may; None: the file stays its maker's."""
    if rights is None:
        return
    for owner, group in ((-1, rights.group), (rights.owner, -1)):
        with suppress(PermissionError):
            os.fchown(opened, owner, group)
    os.fchmod(opened, rights.mode)


def write_new(file: Path, octets: bytes, rights: Rights | None = None) -> None:
    """Write a new file with these rights; without any, only its maker may read it."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as stream:
        give(stream.fileno(), rights)
        stream.write(octets)


def make_folder(folder: Path) -> None:
    """Make a folder that is missing, and those above it; one that root makes is as the folder that it is in."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    if like(folder.parent) is not None:
        above = folder.parent.stat()
        os.chown(folder, above.st_uid, above.st_gid)
        folder.chmod(stat.S_IMODE(above.st_mode))
