"""idempotency — a request that comes again under its Idempotency-Key gets the answer that it had

Owns: fingerprints of requests; which keys have a request under way in this process.
Guarantees: a key and its message are committed in one transaction (shared/spool/commit.py), so after any crash either
    both are known or neither. The answer of an earlier request is given again only when its message is as durable as a
    new one would be. What was refused is not remembered: it is judged again. Keys are the principal's own.
See: sql/README.md, "Crash table"; sql/schema/07_enqueue.sql; draft-ietf-httpapi-idempotency-key-header.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from httpd.problems import Problem, unavailable
from httpd.sending.send import other_body, under_way
from shared.errors import SpoolUnavailable
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from uuid import UUID

    from shared.mail.message import Once
    from shared.spool.spool import Spool

_LONGEST: Final = 256  # characters, as Resend's
_KEPT: Final = 255  # characters in the table


def checked(key: str | None) -> str | None:
    """The header's value; Problem 422 where it is none that can be kept."""
    if key is not None and not (0 < len(key) <= _LONGEST and key.isascii() and key.isprintable()):
        what = f"Idempotency-Key must have 1 to {_LONGEST} printable characters of ASCII"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, what)
    return key


def kept(key: str, number: int | None = None) -> str:
    """The key as the table has it, of a message or of the message with this number in a batch."""
    whole = key if number is None else f"{key}#{number}"
    return whole if len(whole) <= _KEPT else f"sha256:{hashlib.sha256(whole.encode()).hexdigest()}"


def fingerprint(*parts: bytes) -> bytes:
    """Of everything that was asked for."""
    whole = hashlib.sha256(b"http")
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.digest()


class UnderWay:
    """The keys whose requests are under way in this process."""

    def __init__(self) -> None:
        self._keys: set[tuple[str, str]] = set()

    @contextmanager
    def begun(self, principal: str, key: str | None) -> Iterator[None]:
        """As long as the block lasts, no other request may have this key, if there is one; Problem 409."""
        if key is None:
            yield
            return
        mark = principal, key
        if mark in self._keys:
            raise under_way()
        self._keys.add(mark)
        try:
            yield
        finally:
            self._keys.discard(mark)


async def earlier(pool: database.Pool, spool: Spool, keys: Sequence[Once]) -> dict[str, UUID]:
    """The messages that these keys, all of one principal, were used for. Without a key PostgreSQL is not asked.

    Problem 409 where one was for another body, 503 where PostgreSQL cannot say that they are durable.
    """
    if not keys:
        return {}
    prints = {each.key: each.fingerprint for each in keys}
    async with pool.connection() as connection:
        rows = await database.fetch(connection, "message_keys", application=keys[0].application, keys=list(prints))
        for row in rows:
            if bytes(row.fingerprint) != prints[row.key]:
                raise other_body(row.message)
        if rows:
            try:
                await spool.prove_durable(connection)
            except SpoolUnavailable:
                raise unavailable() from None
    return {row.key: row.message for row in rows}
