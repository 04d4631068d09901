"""faults — the error of a lake that cannot be read or written."""

from __future__ import annotations

from shared.errors import PillarboxError


class LakeFault(PillarboxError):
    """The lake cannot be read or written, or holds what this version must not read."""
