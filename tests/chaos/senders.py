"""senders — several clients that submit numbered mail until stopped, and record every reply

Owns: Load, the sessions of a run; their mail, which depends on a seed.
Guarantees: the same seed makes the same messages. A lost session is replaced by another at the daemon's new address.
    The senders are at most `window` recipients ahead of the sink, so that a run can end soon.
See: tests/fixtures/daemons/submit.py for the client, which shares no code with the daemons.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Final

from scripts.demo.sample_mail import Sample
from tests.chaos.applications.application import BREATH, Application
from tests.fixtures.daemons.submit import DOMAINS, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.chaos.accounts import Accounts

_RECIPIENTS: Final = (1, 1, 1, 1, 2, 3, 12)  # some numbers are large enough for COPY (shared/spool/commit.py)


class Load(Application):
    """Mail from several sessions at once."""

    def __init__(
        self, accounts: Accounts, address: Callable[[], tuple[str, int]], seed: int, *, box: str, window: int = 300
    ) -> None:
        """`box` ends each local part and may script the sink; `address` is the present address of smtpd."""
        super().__init__(accounts, window)
        self._address = address
        self._samples = samples(seed, box)

    async def session(self) -> None:
        """Submit one message after another; each once."""
        client: Client | None = None
        while self.open:
            if await self.is_ahead():
                continue
            if client is None or not client.usable:
                client = await self._connected(client)
                continue
            sample = next(self._samples)
            self.accounts.submit(sample)
            replies = await client.send(sample)
            self.accounts.answer(sample, replies, monotonic())
            if not replies[0].startswith("250"):
                await asyncio.sleep(BREATH)
        if client is not None:
            await client.close()

    async def _connected(self, before: Client | None) -> Client | None:
        if before is not None:
            await before.close()
        with suppress(OSError):
            return await Client.open(self._address())
        await asyncio.sleep(BREATH)
        return None


def samples(seed: int, box: str) -> Iterator[Sample]:
    """Endless messages: mostly small, some for many recipients, some with lines that begin with a dot."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        domain = chance.choice(DOMAINS)
        recipients = tuple(f"{number:06}-{each}.{box}@{domain}" for each in range(chance.choice(_RECIPIENTS)))
        lines = ["." * chance.randrange(3) + f"{chance.getrandbits(400):x}" for _ in range(chance.randrange(1, 60))]
        content = f"Subject: {number:06}\r\nTo: {domain}\r\n\r\n" + "\r\n".join(lines) + "\r\n"
        yield Sample(f"n-{number:06}@origin.example", recipients, content.encode())
