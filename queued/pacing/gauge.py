"""gauge — the count of one policy for one combination of fields, within one worker

Owns: the token bucket, the count of messages under way, and the time of the last new connection. Pure: the time is an
    argument, in monotonic seconds.
Guarantees: in any span of T seconds at most `burst + rate * T` messages begin; never more than `concurrency` are under
    way. `look` changes nothing that a caller could observe.
See: https://en.wikipedia.org/wiki/Token_bucket; docs/explanation/pacing.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from queued.waiting.deferral import Deferral

if TYPE_CHECKING:
    from shared.config.queued.pacing import Policy

_SHORTEST, _LONGEST = 0.01, 10.0  # seconds guessed until one of those under way is done
_FIRST_GUESS = 1.0
_WEIGHT = 0.2  # of the latest duration in their mean
LATEST = 600.0  # seconds to wait for a rate at a time: limits may be changed meanwhile
_ALMOST = 1e-9  # the part of a token that floating point may lose


class Bucket(NamedTuple):
    """Tokens as they were at a time."""

    tokens: float
    at: float

    def filled(self, rate: float, burst: float, now: float) -> Bucket:
        """As it is now: `rate` tokens a second came in, up to `burst`. A clock that went back brings none."""
        return Bucket(min(burst, self.tokens + rate * max(0.0, now - self.at)), max(now, self.at))

    def wait(self, rate: float) -> float:
        """Seconds until there is a whole token; 0.0 when there is one."""
        return 0.0 if self.tokens >= 1 - _ALMOST else (1 - self.tokens) / rate

    def taken(self, count: float = 1.0) -> Bucket:
        """With so many tokens less, or more for a negative number."""
        return Bucket(self.tokens - count, self.at)


class Gauge(Protocol):
    """The interface of a limit for queued.pacing.pace, for own and shared counts."""

    policy: Policy

    def look(self, now: float) -> Deferral | None:
        """None when one more may begin."""

    def take(self, now: float) -> None:
        """One begins: only right after `look` said None."""

    def back(self, now: float, started: float, *, unused: bool) -> None:
        """One has ended; `unused` when it did not come to a try, so that its token was not needed."""

    def idle(self, now: float) -> bool:
        """Whether forgetting this would change nothing."""


class LocalGauge:
    """Counted within this worker."""

    __slots__ = ("_bucket", "_connected", "_mean", "_used", "policy")

    def __init__(self, policy: Policy, now: float) -> None:
        self.policy = policy
        self._bucket = Bucket(policy.most, now)
        self._used = 0
        self._mean = _FIRST_GUESS
        self._connected = float("-inf")

    def look(self, now: float) -> Deferral | None:
        """None when one more may begin."""
        policy = self.policy
        if policy.concurrency is not None and self._used >= policy.concurrency:
            every = min(max(self._mean / policy.concurrency, _SHORTEST), _LONGEST)
            return Deferral(every, f"policy {policy.id}: {policy.concurrency} at once", every)
        if policy.rate is not None:
            rate: float = policy.rate.per_second
            self._bucket = self._bucket.filled(rate, policy.most, now)
            if wait := self._bucket.wait(rate):
                return Deferral(min(wait, LATEST), f"policy {policy.id}: {policy.rate}", 1 / rate)
        return None

    def take(self, now: float) -> None:
        """One begins."""
        self._used += 1
        if self.policy.rate is not None:
            self._bucket = self._bucket.filled(self.policy.rate.per_second, self.policy.most, now).taken()

    def back(self, now: float, started: float, *, unused: bool) -> None:
        """One has ended."""
        self._used -= 1
        if unused:
            if self.policy.rate is not None:
                self._bucket = self._bucket.taken(-1).filled(self.policy.rate.per_second, self.policy.most, now)
        else:
            self._mean += _WEIGHT * (now - started - self._mean)

    def until_connect(self, now: float) -> Deferral | None:
        """None when a new connection may be opened."""
        interval = self.policy.connectinterval.total_seconds()
        wait = self._connected + interval - now
        return (
            Deferral(wait, f"policy {self.policy.id}: a connection every {interval:g} s", interval)
            if wait > 0
            else None
        )

    def connected(self, now: float) -> None:
        """A new connection is opened."""
        self._connected = now

    def idle(self, now: float) -> bool:
        """Whether forgetting this would change nothing."""
        policy = self.policy
        if self._used or now < self._connected + policy.connectinterval.total_seconds():
            return False
        if policy.rate is None:
            return True
        return self._bucket.filled(policy.rate.per_second, policy.most, now).tokens >= policy.most
