"""passwords — checks passwords against argon2 hashes, a bounded number at once

Owns: the only importer of argon2; the threads that hash, the queue for them, and the memory of recent correct
    passwords.
Guarantees: a storm of logins takes `threads` threads and their memory, never the event loop; a login behind too many
    others is refused at once (HashingBusy). An unknown user costs what some known one does. A correct password is
    remembered only as an HMAC by a key of this process, with the hash it was right for. A wrong password costs the same
    for a user whose hash is cheaper than ours, or cannot be read, as for one whose hash is ours.
See: RFC 9106 (argon2), whose second recommended parameters are the library's defaults.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from base64 import b64encode
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from shared.security.saslprep import password_octets

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.config.smtpd.authentication import Hashing as HashingSettings

_HASHER: Final = PasswordHasher()
_OUR_WORK: Final = _HASHER.memory_cost * _HASHER.time_cost
_LEAST: Final = 8  # KiB for each lane (RFC 9106 section 3.1)
_REMEMBERED: Final = 10_000  # passwords; some 2 MB
#: Of an unknown user.
_SALT, _DIGEST = (b64encode(secrets.token_bytes(octets)).rstrip(b"=").decode() for octets in (16, 32))
#: What the hashes cost that `make_hash` makes.
OURS: Final = f"$argon2id$v=19$m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"


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


def cost_of(known: str) -> str:
    """What verifying a hash costs: its variant and its parameters as it has them, without salt and digest."""
    return known.rsplit("$", 2)[0]


def unknown_hash(cost: str) -> str:
    """A hash of this cost that no password matches."""
    return f"{cost}${_SALT}${_DIGEST}"


def _looked_at(known: str, password: str) -> bool:
    """As verify, with the work of a hash of ours at least where it is wrong: time must not reveal which users exist."""
    right = verify(known, password)
    missing = _OUR_WORK - _work(known)
    if not right and missing > 0:
        verify(unknown_hash(_cost(missing)), password)
    return right


def _cost(work: int) -> str:
    """That of one hash with this work, with the memory of ours as nearly as a whole number of passes allows."""
    passes = -(-work // _HASHER.memory_cost)
    memory = max(-(-work // passes), _LEAST * _HASHER.parallelism)
    return f"$argon2id$v=19$m={memory},t={passes},p={_HASHER.parallelism}"


def _work(known: str) -> int:
    """The cost of verifying a hash: memory times passes; 0 for an unreadable one."""
    try:
        parameters = extract_parameters(known)
    except InvalidHashError:
        return 0
    return parameters.memory_cost * parameters.time_cost


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

    async def check(self, known: str, password: str) -> bool:
        """Whether `password` is right for the hash `known`, perhaps that of an unknown user. Raises HashingBusy."""
        mark = hmac.digest(self._key, f"{known}\0".encode() + password_octets(password), "sha256")
        if self._right.get(mark, 0.0) > self._clock():
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
