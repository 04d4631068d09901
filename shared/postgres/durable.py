"""durable — whether a COMMIT is where it should be

Guarantees: a COMMIT that ended with a warning, because PostgreSQL gave up waiting for a standby, is reported. The
    transaction must set client_min_messages to warning: a role may have another value, and then says nothing.
Raises: NotDurable.
See: PostgreSQL manual, "Synchronous Replication"; src/backend/replication/syncrep.c, SyncRepWaitForLSN.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from shared.errors import NotDurable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.errors import Diagnostic

    from shared.postgres import database

# Where in PostgreSQL a WARNING comes from that says nothing about this COMMIT: RAISE, transaction and multixact ids.
_HARMLESS: Final = frozenset({"pl_exec.c", "varsup.c", "multixact.c"})


@contextmanager
def durable(connection: database.Connection) -> Iterator[None]:
    """NotDurable when PostgreSQL warns, in this block, that the COMMIT may not be where it should be.

    Ending the wait for a standby (pg_cancel_backend, a statement_timeout) leaves a committed transaction and
    a WARNING with the SQLSTATE of any other, 01000. So each one counts, but for those that come from a RAISE in a
    trigger of the operator's, or tell that transaction ids are running out.
    """
    warnings: list[str] = []

    def hear(notice: Diagnostic) -> None:
        # The text of a notice can be read only now.
        if notice.severity_nonlocalized == "WARNING" and notice.source_file not in _HARMLESS:
            warnings.append(f"{notice.message_primary} (SQLSTATE {notice.sqlstate})")

    connection.add_notice_handler(hear)
    try:
        yield
    finally:
        connection.remove_notice_handler(hear)
    if warnings:
        raise NotDurable("; ".join(warnings))
