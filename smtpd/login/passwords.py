"""passwords — checks passwords against argon2 hashes, a bounded number at once

Owns: the only importer of argon2; the threads that hash, the queue for them, and the memory of recent correct
    passwords.
Guarantees: a storm of logins takes `threads` threads and their memory, never the event loop; a login behind too many
    others is refused at once (HashingBusy). An unknown user costs one hash as a known one does. A correct password is
    remembered only as an HMAC by a key of this process, with the hash it was right for. A wrong password costs no less
    for a user whose hash is cheaper than ours, or cannot be read.
See: RFC 9106 (argon2), whose second recommended parameters are the library's defaults.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from shared.security.saslprep import password_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.config.smtpd.authentication import Hashing as HashingSettings

_HASHER: Final = PasswordHasher()
_REMEMBERED: Final = 10_000  # passwords; some 2 MB


class HashingBusy(Exception):
    """Too many logins wait already."""


def make_hash(password: str) -> str:
    """The argon2 hash of a password, with a fresh salt."""
    return _HASHER.hash(password_octets(password))


def verify(known: str, password: str) -> bool:
    """Whether the password matches the hash; an unreadable hash matches none."""
    try:
        return _HASHER.verify(known, password_octets(password))
    except (VerificationError, InvalidHashError):
        return False


def _looked_at(known: str | None, password: str) -> bool:
    """As verify, with the work of a hash of ours at least where it is wrong: time must not tell who has an account."""
    right = known is not None and verify(known, password)
    if not right and (known is None or _work(known) < _work(nobody())):
        verify(nobody(), password)
    return right


def _work(known: str) -> int:
    """The cost of verifying a hash: memory times passes; 0 for an unreadable one."""
    try:
        parameters = extract_parameters(known)
    except InvalidHashError:
        return 0
    return parameters.memory_cost * parameters.time_cost


@cache
def nobody() -> str:
    """A hash no password of a user is checked against: what an unknown user costs. Made at the first need."""
    return _HASHER.hash(secrets.token_bytes(32))


class Hashing:
    """A bounded number of threads that check passwords."""

    def __init__(self, settings: HashingSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = settings.threads + settings.waiting
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="hashing")
        self._pending = 0
        self._clock = clock
        self._seconds = settings.remembered.total_seconds()
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, float] = OrderedDict()

    async def check(self, known: str | None, password: str) -> bool:
        """Whether `password` is right for the hash `known`; None: no such user. Raises HashingBusy."""
        mark = hmac.digest(self._key, f"{known}\0".encode() + password_octets(password), "sha256")
        if known is not None and self._right.get(mark, 0.0) > self._clock():
            return True
        if self._pending >= self._most:
            raise HashingBusy
        self._pending += 1
        try:
            right = await asyncio.get_running_loop().run_in_executor(self._threads, _looked_at, known, password)
        finally:
            self._pending -= 1
        if right and self._seconds:
            self._remember(mark)
        return right

    def close(self) -> None:
        """Start no more; what waits is given up."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _remember(self, mark: bytes) -> None:
        self._right[mark] = self._clock() + self._seconds
        self._right.move_to_end(mark)
        while len(self._right) > _REMEMBERED or next(iter(self._right.values())) <= self._clock():
            self._right.popitem(last=False)
