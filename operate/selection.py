"""selection — the mail that a suspend applies to, in words

Guarantees: pure.
See: shared/config/queued/pacing.py, Match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def in_words(selection: Mapping[str, Sequence[str]]) -> str:
    """A selection as people read it."""
    return "; ".join(f"{name} {', '.join(values)}" for name, values in selection.items()) or "all mail"
