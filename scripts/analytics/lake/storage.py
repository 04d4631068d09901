"""storage — how files of a lake in a folder reach the disk

Owns: the FileIO that PyIceberg is given for a lake in a folder.
Guarantees: a file is on disk, with its name, when it is closed, so a commit never names a file that a power failure can
    undo. It is written a megabyte at a time, each flushed before the next: mail's commits on the same disk wait behind
    a megabyte at most, not behind a whole file. Object stores use PyIceberg's own FileIO.
See: fdatasync(2); https://py.iceberg.apache.org/configuration/#fileio.
"""

from __future__ import annotations

import os
from io import FileIO as RawFile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO

if TYPE_CHECKING:
    from collections.abc import Buffer

    from pyiceberg.io import InputFile
    from pyiceberg.io.pyarrow import PyArrowFile

#: The name under which PyIceberg loads it.
NAME: Final = "scripts.analytics.lake.storage.FolderIO"
_PIECE: Final = 1 << 20
_SCHEME: Final = "file://"


def local(location: str) -> Path:
    """The path of a file by its location in Iceberg's metadata."""
    return Path(location.removeprefix(_SCHEME))


class SyncedFile(RawFile):
    """A new file that is on disk once it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, "wb" if overwrite else "xb")
        self._path = path
        self._waiting = 0

    def write(self, octets: Buffer, /) -> int:
        """Write all octets; what is flushed at once is at most a megabyte."""
        view = memoryview(octets).cast("B")
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE]
            while len(piece):
                piece = piece[super().write(piece) or 0 :]
            self._waiting += min(_PIECE, len(view) - start)
            if self._waiting >= _PIECE:
                os.fdatasync(self.fileno())
                self._waiting = 0
        return len(view)

    def close(self) -> None:
        """Flush the file and its name."""
        if not self.closed:
            os.fsync(self.fileno())
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        super().close()


class SyncedOutput(OutputFile):
    """A file that PyIceberg writes."""

    def __init__(self, location: str, plain: PyArrowFile) -> None:
        super().__init__(location)
        self._plain = plain

    def __len__(self) -> int:
        return len(self._plain)

    def exists(self) -> bool:
        """Whether it is there."""
        return self._plain.exists()

    def to_input_file(self) -> InputFile:
        """The same file to read."""
        return self._plain

    def create(self, overwrite: bool = False) -> SyncedFile:  # noqa: FBT001, FBT002 - its form
        """Begin it."""
        return SyncedFile(local(self.location), overwrite=overwrite)


class FolderIO(PyArrowFileIO):
    """PyIceberg's FileIO with files that are flushed."""

    def new_output(self, location: str) -> SyncedOutput:  # type: ignore[override]
        """A file to write."""
        return SyncedOutput(location, super().new_output(location))
