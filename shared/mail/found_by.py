"""found_by — the Message-ID and the subject by which people find a message

Owns: what is kept of these two fields, and the form in which a Message-ID is asked for.
Guarantees: pure; any octets are read, within the 2,000 that callers keep, and without an exception. What is returned is
    one line that PostgreSQL can store and that is harmless in a log: no control characters, no NUL, no lone surrogates,
    no overrides of direction. The same rules as in sql/schema/07_enqueue.sql; a test compares them.
See: sql/README.md, "Finding what was sent"; RFC 5322 sections 3.6.4 (Message-ID), 3.6.5 (Subject), RFC 2047.
"""

from __future__ import annotations

import re
from typing import Final

from shared.mail.decode import without_words

#: Characters that are kept of each.
MSGID_KEPT: Final = 255
SUBJECT_KEPT: Final = 200

_IN_BRACKETS: Final = re.compile("<([^<>]*)>")
_UNSEEN: Final = re.compile("[\0-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def msgid(value: bytes) -> str | None:
    """The Message-ID of a field's value as written, without angle brackets; None for an empty one."""
    return asked(_line(value))


def subject(value: bytes) -> str | None:
    """The subject of a field's value as written, decoded; None for an empty one."""
    line = _line(value)
    if "=?" in line:
        line = " ".join(without_words(line).split())
    return _seen(line)[:SUBJECT_KEPT].rstrip() or None


def asked(text: str) -> str | None:
    """A Message-ID as a person gives it, with or without angle brackets, as it is kept."""
    inner = _IN_BRACKETS.search(text)
    return _seen(inner[1] if inner else text).strip()[:MSGID_KEPT].rstrip() or None


def _line(value: bytes) -> str:
    return " ".join(value.decode("utf-8", "replace").split())


def _seen(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _UNSEEN.sub("", text)
