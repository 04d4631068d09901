"""errors — our exceptions, in words that a person can act on

Owns: the exception types that both daemons and the commands raise across modules; a text for any other exception.
Guarantees: `str(error)` of ours is one line without secrets, fit for an operator's terminal. The text for others is
    one line too, and never empty.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uuid import UUID

_OF_ASYNCIO: Final = "Connect call failed"
_LACKS_RIGHT: Final = "42501"
_LACKS_SCHEMA: Final = ("42P01", "3F000")
#: Classes of SQLSTATE: connection, transaction rolled back, resources, object not in the state for it, operator
#: intervention, system error.
_OF_SERVER: Final = frozenset({"08", "40", "53", "55", "57", "58"})
_READ_ONLY: Final = "25006"
#: By SQLSTATE: what an operator does about it.
_REMEDIES: Final = {
    _LACKS_RIGHT: "; see docs/how-to/rights/grant-roles.md",
    **dict.fromkeys(_LACKS_SCHEMA, "; run `pillarbox migrate`"),
}


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
    """A configured address and port cannot be bound."""

    exit_status = 69  # EX_UNAVAILABLE, sysexits.h


class SpoolUnavailable(PillarboxError):
    """A message could not be committed to the queue; the client gets 451 and keeps it."""


class NotDurable(SpoolUnavailable):
    """PostgreSQL has committed a message where a crash could still lose it; the client gets 451 and keeps it."""


class KeyUsed(PillarboxError):
    """A message was submitted under an idempotency key that a committed one has."""

    def __init__(self, message: UUID, fingerprint: bytes) -> None:
        """`message` is the one that has it, `fingerprint` of what was asked for with it."""
        super().__init__(f"the idempotency key is that of message {message}")
        self.message, self.fingerprint = message, fingerprint


class KeyBusy(PillarboxError):
    """Another transaction that is not over has the idempotency key."""


class SpoolFull(SpoolUnavailable):
    """So much waits to be committed that no more is accepted for now; the client gets 452."""


class NoSpace(SpoolFull):
    """PostgreSQL's volumes have too little room left for more mail; the client gets 452."""


def in_words(error: BaseException) -> str:
    """Its text, in one line; for one without a text, such as a bare TimeoutError, its type."""
    said = " ".join(str(error).split())
    return said or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)


def first_line(error: BaseException) -> str:
    """The first line of its text: what PostgreSQL says, without the place in our SQL."""
    return str(error).partition("\n")[0].strip() or type(error).__name__


def cause(error: BaseException) -> str:
    """The same, but only the reason of a system error: the caller knows the number and the file's name."""
    said = getattr(error, "strerror", None) or in_words(error)
    if said.startswith(_OF_ASYNCIO) and isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # uvloop's words too
    return said


def error_text(error: Exception) -> str:
    """The text of an error of ours; of any other, which is unexpected, the type as well."""
    return in_words(error) if isinstance(error, PillarboxError) else repr(error)


def remedy(error: BaseException) -> str:
    """What to do about a refusal of PostgreSQL's, to follow its text; nothing where the text must do."""
    return _REMEDIES.get(getattr(error, "sqlstate", None) or "", "")


def is_of_server(error: BaseException) -> bool:
    """Whether PostgreSQL cannot do this now, whatever it was asked: no room, a lock, a shutdown, a read-only server."""
    state = getattr(error, "sqlstate", None) or ""
    return state[:2] in _OF_SERVER or state == _READ_ONLY


def lacks_schema(error: BaseException) -> bool:
    """Whether PostgreSQL misses a table or the schema (undefined_table, invalid_schema_name)."""
    return getattr(error, "sqlstate", None) in _LACKS_SCHEMA


def lacks_right(error: BaseException) -> bool:
    """Whether PostgreSQL refuses this because the login lacks a right (insufficient_privilege)."""
    return getattr(error, "sqlstate", None) == _LACKS_RIGHT
