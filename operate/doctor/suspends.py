"""suspends — the verdict on mail that is suspended

Guarantees: pure.
See: docs/how-to/deliver/suspend-a-destination.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate.doctor.checks import Finding, Severity, listed
from operate.selection import in_words
from shared.config.queued.pacing import FIELDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shared.config.queued.pacing import Suspend
    from shared.postgres.database import Row


def suspended(rows: Sequence[Row], configured: Sequence[Suspend]) -> Finding:
    """What waits until a suspend ends; `rows` as query suspend_active has them, `configured` as in queued.yaml."""
    check = "mail.suspended"
    from_file = [{name: values for name in FIELDS if (values := getattr(each.match, name))} for each in configured]
    texts = [f"{in_words(row.selection)} (suspend {row.id}: {row.reason})" for row in rows]
    texts += [
        f"{in_words(selection)} (pacing.suspends[{index}]: {each.reason})"
        for index, (selection, each) in enumerate(zip(from_file, configured, strict=True))
    ]
    if not texts:
        return Finding(check, Severity.OK, "no mail is suspended")
    text = f"suspended: {listed(texts)}"
    if all([*(row.selection for row in rows), *from_file]):
        return Finding(check, Severity.NOTE, text)
    ends = [f"`pillarbox suspend remove {row.id}`" for row in rows if not row.selection]
    ends += [
        f"remove pacing.suspends[{index}] from queued.yaml and reload queued"
        for index, selection in enumerate(from_file)
        if not selection
    ]
    return Finding(check, Severity.WARN, text, f"to let it go: {'; '.join(ends)}")
