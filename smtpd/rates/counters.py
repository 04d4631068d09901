"""counters — counts of recent hits, and of sessions that are open now

Owns: the arithmetic of rates and of sessions at once, as values in memory. Pure: time is an argument.
Guarantees: within any span of t seconds at most `most * (1 + t / window)` hits are allowed, however they are spread
    and whatever the client does in between; a refusal costs nothing and says when the same hit would be allowed. Each
    answer is O(limits asked). Memory is bounded: past `remembered` keys the one longest unused is forgotten, which errs
    in the client's favour. Bans, and the failures that lead to them, are kept apart from counts of which any client can
    make many keys, so that no flood of other counts makes us forget them.
See: the generic cell rate algorithm, ITU-T I.371 annex A: one number for each key, where fixed windows need two and
    let twice the rate through where two of them meet.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

#: About 20 MB of keys; a flood from more addresses than that is not held back one by one.
REMEMBERED: Final = 100_000


#: How keys begin: those of rates.count, and below that smtpd.login.failures'.
OWN: Final = "own/"
_LONGEST_WORD: Final = 128  # characters
_BANS: Final = "auth/ban/"
_FAILURES: Final = "auth/"


def short(word: str) -> str:
    """A client's word as part of a key: itself, or its digest where it is long, so that keys stay small."""
    if len(word) <= _LONGEST_WORD:
        return word
    return blake2b(word.encode(errors="surrogatepass"), digest_size=32).hexdigest()


class Limit(NamedTuple):
    """At most `most` hits of `key` within `window` seconds."""

    key: str
    most: int
    window: float


class HitCounter:
    """Hits by key."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        # When everything hit so far would have been spread out evenly: the theoretical arrival time of the next.
        self._paid_until: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_until)

    def hit(self, limits: Sequence[Limit], hits: int, now: float) -> float:
        """Count `hits` against all limits, or none of them; the seconds until it would be allowed, 0 if it was.

        No hits ask whether one would be allowed, and count nothing; fewer than none give back as many that were counted
        before, and are always allowed. More hits at once than a limit has are counted
        as the limit: they are allowed on a clean slate, since no wait would ever make room for them.
        """
        if hits < 0:
            for key, most, window in limits:
                if key in self._paid_until:
                    self._paid_until[key] -= min(-hits, most) * window / most
            self._forget(now)
            return 0.0
        wait = 0.0
        paid: list[tuple[str, float]] = []
        for key, most, window in limits:
            cost = min(max(hits, 1), most) * window / most
            until = max(now, self._paid_until.get(key, now)) + cost
            # A hit right after the announced wait must be allowed: floating point must not refuse it.
            wait = max(wait, until - now - window)
            paid.append((key, until))
        if wait > _ROUNDING:
            return wait
        if hits:
            for key, until in paid:
                self._paid_until[key] = until
                self._paid_until.move_to_end(key)
            self._forget(now)
        return 0.0

    def note(self, limits: Sequence[Limit], hits: int, wait: float, now: float) -> None:
        """Take over what was decided elsewhere: `hits` were counted, or, with a `wait`, one would be refused so long.

        Of several limits it is not known which one refuses, and nothing is noted. Never is a key refused for longer
        than its window for what was let in.
        """
        if wait and len(limits) > 1:
            return
        for key, most, window in limits:
            cost = window / most
            if wait:
                until = now + wait + window - cost
            elif hits:
                until = min(max(now, self._paid_until.get(key, now)) + min(hits, most) * cost, now + window)
            else:
                continue
            self._paid_until[key] = max(until, self._paid_until.get(key, now))
            self._paid_until.move_to_end(key)
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Drop keys that have nothing left to pay for, and the oldest beyond our memory."""
        while self._paid_until:
            key, until = next(iter(self._paid_until.items()))
            if until > now and len(self._paid_until) <= self._remembered:
                break
            del self._paid_until[key]


class Hits:
    """Hits by key, with memory of their own for bans, for failed logins and for everything else."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """`remembered`: keys of each kind."""
        self._apart = {prefix: HitCounter(remembered) for prefix in (_BANS, _FAILURES, "")}

    def hit(self, limits: Sequence[Limit], hits: int, now: float) -> float:
        """As in HitCounter; limits that are asked together are of one kind."""
        return self._of(limits).hit(limits, hits, now) if limits else 0.0

    def note(self, limits: Sequence[Limit], hits: int, wait: float, now: float) -> None:
        """As in HitCounter."""
        if limits:
            self._of(limits).note(limits, hits, wait, now)

    def _of(self, limits: Sequence[Limit]) -> HitCounter:
        key = limits[0].key.removeprefix(OWN)
        return next(counter for prefix, counter in self._apart.items() if key.startswith(prefix))


class SessionCounter:
    """Sessions open at once, by key; each under a token that its holder chose."""

    def __init__(self) -> None:
        self._open: dict[str, int] = {}
        self._keys: dict[Hashable, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def count(self, key: str) -> int:
        """How many sessions hold this key."""
        return self._open.get(key, 0)

    def open(self, token: Hashable, limits: Iterable[tuple[str, int]]) -> bool:
        """Count a session under each key, unless one of them has as many as its limit already."""
        asked = tuple(limits)
        if token in self._keys:
            self.close(token)
        if any(self.count(key) >= most for key, most in asked):
            return False
        for key, _ in asked:
            self._open[key] = self.count(key) + 1
        self._keys[token] = tuple(key for key, _ in asked)
        return True

    def close(self, token: Hashable) -> None:
        """A session ended; nothing happens when it was not counted."""
        for key in self._keys.pop(token, ()):
            left = self._open[key] - 1
            if left:
                self._open[key] = left
            else:
                del self._open[key]


_ROUNDING: Final = 1e-6  # seconds
