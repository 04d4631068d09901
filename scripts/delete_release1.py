"""delete_release1 — the retention script of Halon's queue manual, for cron

Owns: one action: deleting mail that has been on hold in quarantine mailquarantine:release1 for more than a day.
Guarantees: those of `pillarbox retention`: batches, an audit row, an archive row for each recipient. As
    pillarbox_reviewer it can only decide about held mail.
See: docs/how-to/review/keep-and-delete.md; Halon's queue manual, 3.3.1, whose statement compares with -> where it means
    ->>.
"""

from __future__ import annotations

import sys

from scripts import cli

COMMAND = ("retention", "--quarantine", "mailquarantine:release1", "--age", "1d", "--yes")


def main(arguments: list[str] | None = None) -> int:
    """Delete them; the exit status."""
    return cli.main([*COMMAND, *(sys.argv[1:] if arguments is None else arguments)])


if __name__ == "__main__":
    sys.exit(main())
