"""errors — what can go wrong in words a person can act on

Owns: the exception types both daemons and the commands raise across module borders.
Called by: everybody; the entry points turn a PillarboxError into one line and an exit status.
Guarantees: `str(error)` is one line without secrets, fit for an operator's terminal.
"""

from __future__ import annotations


class PillarboxError(Exception):
    """Something an operator can act on; its text is one clear line."""

    exit_status = 1


class ConfigError(PillarboxError):
    """The configuration cannot be used; the line names file, line, key, value and what is allowed."""

    exit_status = 78  # EX_CONFIG, sysexits.h


class DatabaseUnavailable(PillarboxError):
    """PostgreSQL does not answer, or refuses us."""

    exit_status = 69  # EX_UNAVAILABLE, sysexits.h


class SchemaMismatch(PillarboxError):
    """The schema in the database is older or newer than this code."""

    exit_status = 78  # EX_CONFIG, sysexits.h


class ListenFailed(PillarboxError):
    """An address and port we were told to listen on cannot be bound."""

    exit_status = 69  # EX_UNAVAILABLE, sysexits.h


class SpoolUnavailable(PillarboxError):
    """A message could not be committed to the queue; the client is told 451 and keeps it."""


class SpoolFull(SpoolUnavailable):
    """So much waits to be committed that no more is taken for now; the client is told 452."""
