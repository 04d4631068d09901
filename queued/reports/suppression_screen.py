"""suppression_screen — stops mail to suppressed addresses, and reads reports

Owns: the check of a message's recipients before they are tried; the configuration of it, as one value.
Guarantees: while no addresses are suppressed it costs one query every few seconds. If PostgreSQL does not answer, mail
    to addresses goes on, and reports wait. A recipient that it finishes has a Result like any other, fenced by the
    claim's token. A check ends by the configuration it began with. However many reports there are, a few are read at a
    time.
Raises: ConfigError from `Screening` for a secret that cannot be read; nothing else.
See: queued/reports/learn.py; shared/config/suppression.py; docs/how-to/deliver/suppression.md.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Final

from queued.reports.learn import learn
from queued.reports.read import read
from queued.values import Result
from shared.errors import ConfigError
from shared.mail.outcome import Outcome
from shared.mail.suppression import return_path, target
from shared.observe import events
from shared.postgres import database

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from queued.reports.read import IncomingReport
    from queued.values import Claimed
    from queued.waiting.deferral import Deferral
    from shared.config.suppression import Suppression

_LEARNING: Final = 1  # at once: other mail needs PostgreSQL and the processor too, and anybody may send reports
_GLANCE: Final = 5.0  # seconds for which it is remembered that no addresses are suppressed
_LATER: Final = timedelta(minutes=1)
_LEAST_SECRET: Final = 16  # octets


class Screening:
    """The settings of suppressions and reports of one configuration. Raises ConfigError for an unreadable secret."""

    def __init__(self, settings: Suppression) -> None:
        self.settings = settings
        self.patterns = frozenset(settings.addresses)
        self.secret = _secret(settings)

    def is_report(self, c: Claimed) -> bool:
        """Whether mail to this recipient is read and not delivered."""
        return bool(self.patterns) and (_key(c) in self.patterns or target(c.recipient.domain) in self.patterns)


class Screen:
    """A worker's state of suppressions and reports."""

    def __init__(self, pool: database.Pool, screening: Screening) -> None:
        self._pool = pool
        self._screening = screening
        self._learning = asyncio.Semaphore(_LEARNING)
        self._any = True
        self._asked = -_GLANCE

    def use(self, screening: Screening) -> None:
        """From now on look by this."""
        self._screening = screening

    def is_report(self, c: Claimed) -> bool:
        """Whether mail to this recipient is read and not delivered. No sender is notified of it: anybody may send
        it, in the name of whom he likes.
        """
        return self._screening.is_report(c)

    def sender(self, c: Claimed) -> str | None:
        """The address for MAIL FROM instead of the sender, where a return path is configured; the null sender stays."""
        domain, secret = self._screening.settings.returnpath.domain, self._screening.secret
        if c.sender is None or domain is None or secret is None:
            return None
        return f"{return_path(c.message_id, secret)}@{domain}"

    async def around(
        self,
        claimed: tuple[Claimed, ...],
        content: bytes,
        send: Callable[[tuple[Claimed, ...]], Awaitable[list[Result] | Deferral | None]],
    ) -> list[Result] | Deferral | None:
        """The results of these recipients: those that are finished here, and the answer of `send` for the others.

        Where those are not sent now, none is finished: the next try checks again.
        """
        done, left = await self.look(claimed, content)
        if not done:
            return await send(left)
        ended = await send(left) if left else []
        return [*done, *ended] if isinstance(ended, list) else ended

    async def look(self, claimed: Sequence[Claimed], content: bytes) -> tuple[list[Result], tuple[Claimed, ...]]:
        """The results of recipients that are finished untried, and the recipients to try."""
        screening = self._screening
        reports = [c for c in claimed if screening.is_report(c)]
        done = await self._read_all(reports, content, screening) if reports else []
        left = [c for c in claimed if c not in reports] if reports else claimed
        if left and screening.settings.atdelivery == "reject":
            try:
                listed = await self._listed(left)
            except (*database.OUTAGE, *database.REFUSAL) as error:
                events.emit("suppression.unavailable", error=database.reason(error), away=database.is_away(error))
                listed = {}
            if listed:
                done += [_refused(c, listed[_key(c)]) for c in left if _key(c) in listed]
                left = [c for c in left if _key(c) not in listed]
        return done, tuple(left)

    async def _read_all(self, reports: Sequence[Claimed], content: bytes, by: Screening) -> list[Result]:
        async with self._learning:
            report = await asyncio.to_thread(read, content)
            return [await self._read(c, report, by) for c in reports]

    async def _read(self, c: Claimed, report: IncomingReport | None, by: Screening) -> Result:
        try:
            async with self._pool.connection() as connection:
                said = await learn(connection, c, report, by.settings, by.secret)
        except (*database.OUTAGE, *database.REFUSAL) as error:
            text = f"the report could not be noted: {database.reason(error)}"
            return Result.later(c, Outcome("deferred", "us", None, "4.3.0", text), _LATER)
        self._any = True  # perhaps since this very report
        events.emit("suppression.read", id=c.message_id, to=c.recipient, said=said)
        return Result(c, Outcome("delivered", "recipient", None, "2.0.0", said), None, timedelta(0), "success", None)

    async def _listed(self, claimed: Sequence[Claimed]) -> dict[str, str]:
        """Those of these recipients that are suppressed, and why."""
        if not self._any and monotonic() - self._asked < _GLANCE:
            return {}
        targets = {_key(c): target(c.recipient.domain) for c in claimed}
        before, self._asked = self._asked, monotonic()  # attempts that begin meanwhile go by the answer before
        try:
            async with self._pool.connection() as connection:
                rows = await database.fetch(
                    connection, "suppression_among", now=None, targets=[*targets, *set(targets.values())]
                )
        except BaseException:
            self._asked = before
            raise
        self._any = rows[0].anybody
        reasons = {row.target: row.reason for row in rows if row.target is not None}
        return {
            key: reasons.get(key) or reasons[domain] for key, domain in targets.items() if {key, domain} & {*reasons}
        }


def _key(c: Claimed) -> str:
    return target(str(c.recipient))


def _refused(c: Claimed, reason: str) -> Result:
    outcome = Outcome("failed", "recipient", None, "5.7.1", f"recipient is on the suppression list: {reason}")
    return Result(c, outcome, None, timedelta(0), "rejected", None)


def _secret(settings: Suppression) -> bytes | None:
    path = settings.returnpath.secret
    if path is None:
        return None
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"suppression.returnpath.secret: {path}: cannot be read: {error.strerror}; allowed: a file"
        ) from None
    if len(secret) < _LEAST_SECRET:
        raise ConfigError(f"suppression.returnpath.secret: {path}: too short; allowed: at least {_LEAST_SECRET} octets")
    return secret
