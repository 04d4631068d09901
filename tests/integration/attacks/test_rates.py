"""test_rates — a client that blocks the counting process gets at most its limit once more

Owns: real processes with their supervisor, which counts for all of them, stopped.
See: smtpd/rates/client.py; tests/unit/smtpd/test_rates.py for the arithmetic; docs/how-to/accept/limit-clients.md.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

from tests.fixtures.daemons.serving import Dialogue

if TYPE_CHECKING:
    from tests.fixtures.daemons.system import Daemon, System

PROCESSES = 3
LIMIT = 9
ASKED = 60


async def asked(smtpd: Daemon, times: int) -> Counter[str]:
    """The replies to MAIL, each on a connection of its own, and so by any of the processes."""
    replies: Counter[str] = Counter()
    for _ in range(times):
        async with Dialogue(smtpd.address[1]) as client:
            replies[(await client.ask(b"MAIL FROM:<a@sender.example>"))[:9]] += 1
    return replies


async def test_without_the_counting_process_each_process_allows_its_share(system: System) -> None:
    """Sixty were let in before; each of them waits 50 ms for an answer."""
    rates = {"exempt": [], "window": "1h", "address": {"messages": LIMIT}}
    smtpd = await system.smtpd(processes=PROCESSES, rates=rates)
    smtpd.signal(signal.SIGSTOP)  # the supervisor, which counts
    try:
        stalled = await asked(smtpd, ASKED)
    finally:
        smtpd.signal(signal.SIGCONT)
    assert 1 <= stalled["250 2.1.0"] <= LIMIT
    assert stalled["450 4.7.1"] == ASKED - stalled["250 2.1.0"]
    await smtpd.until_said("rates.unanswered")
    assert await asked(smtpd, 3) == {"450 4.7.1": 3}, "messages sent in the meantime are counted"


async def test_messages_allowed_before_count_towards_the_share(system: System) -> None:
    rates = {"exempt": [], "window": "1h", "address": {"messages": LIMIT}}
    smtpd = await system.smtpd(processes=PROCESSES, rates=rates)
    assert await asked(smtpd, LIMIT + 5) == {"250 2.1.0": LIMIT, "450 4.7.1": 5}
    smtpd.signal(signal.SIGSTOP)
    try:
        stalled = await asked(smtpd, ASKED)
    finally:
        smtpd.signal(signal.SIGCONT)
    assert stalled["250 2.1.0"] < LIMIT, "a process that let in its share lets in no more"
