"""faults — the error of a lake that cannot be read or written

Guarantees: whatever PyIceberg raises about a damaged catalog or damaged metadata is one line. It has no error of its
    own for that: a manifest that was cut short may raise SystemError.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from shared.errors import PillarboxError, first_line

if TYPE_CHECKING:
    from collections.abc import Iterator


class LakeFault(PillarboxError):
    """The lake cannot be read or written, or holds what this version must not read."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of PyIceberg in this block into a LakeFault about `what`."""
    try:
        yield
    except PillarboxError:
        raise
    except Exception as error:
        raise LakeFault(f"{what} cannot be read: {first_line(error)}") from error


def damaged(file: object, reason: str) -> LakeFault:
    """The error of a data file that cannot be read, with what helps."""
    return LakeFault(f"{file}: {reason}; restore it, or export the day again with --again")
