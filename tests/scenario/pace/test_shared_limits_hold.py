"""test_shared_limits_hold — workers obey a shared limit even if one is killed while it holds slots

Owns: the proof, counted at the sink, that `shared: true` is exact across real workers.
See: sql/README.md, "Pacing"; tests/integration/pacing/test_pace_shared.py.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from queued.pacing.pace_shared import PORTION
from tests.fixtures.daemons.submit import numbered
from tests.fixtures.waiting import eventually

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

RATE, BURST, MESSAGES = 20, 5, 100
SLACK = 0.5  # seconds from a turn to the start of its attempt
DOMAINS = ["ash.example", "beech.example", "birch.example", "elm.example", "hazel.example", "holly.example"]


def policy(**limits: Any) -> dict[str, Any]:
    """One limit on all mail, shared by all workers."""
    return {"policies": [{"id": "all", "shared": True, **limits}]}


async def test_two_workers_never_exceed_the_rate_they_share(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    pacing = policy(rate=f"{RATE}/sec", burst=BURST)
    claim = {"poll": "500ms", "batch": 10, "inflight": 50}
    for name in (
        "one",
        "two",
    ):  # both run before mail is queued, because on a busy machine the first would send all of it
        await system.worker(books.sink.port, name, claim=claim, pacing=pacing)
    await books.submit(smtpd, numbered(MESSAGES, DOMAINS))
    await books.until_arrived(MESSAGES)
    await system.until_finished()
    took = dict(
        await system.rows("""SELECT recipientlocalpart::text, extract(epoch FROM duration)::float8
                 FROM attempts JOIN archive a ON a.id = queue__id""")
    )
    arrived = sorted((record.at, record.recipients[0].partition("@")[0]) for record in books.sink.received)
    # A turn is taken before its attempt begins, and the sink has the message before the attempt ends.
    for first, (at, box) in enumerate(arrived):
        begun = at - took[box]
        for last, (ended, _) in enumerate(arrived[first:], first):
            assert last - first + 1 <= BURST + RATE * (ended - begun + PORTION + SLACK)
    shares = Counter(worker for (worker,) in await system.rows("SELECT split_part(worker, '@', 1) FROM attempts"))
    assert shares.keys() == {"one", "two"}, "a worker had no mail, so this test proves little"


async def test_slots_of_a_killed_worker_stay_taken_until_they_expire(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    claim = {"poll": "500ms", "lease": "15m"}  # it continues
    await books.submit(smtpd, numbered(3, DOMAINS, box="slow60"))  # not answered when their worker dies
    doomed = await system.worker(books.sink.port, "doomed", claim=claim, pacing=policy(concurrency=3))
    await system.until("SELECT sum(slots) = 3 FROM pace_shares")
    await eventually(lambda: books.arrivals == 3, "three messages are under way")
    await doomed.kill()
    await system.rows("UPDATE pace_shares SET expires = now() + interval '10 minutes' WHERE worker LIKE 'doomed@%%'")

    await system.worker(books.sink.port, "heir", claim=claim, pacing=policy(concurrency=3))
    await books.submit(smtpd, numbered(6, DOMAINS, first=100))
    await system.until("SELECT count(*) = 1 FROM pace_shares WHERE worker LIKE 'heir@%%' AND waiting IS NOT NULL")
    held = "SELECT sum(slots) = 3 FROM pace_shares WHERE worker LIKE 'doomed@%%' AND expires > clock_timestamp()"
    assert await system.value(held)
    assert books.arrivals == 3
    await system.rows("UPDATE pace_shares SET expires = now() WHERE worker LIKE 'doomed@%%'")  # as if time had passed
    await books.until_arrived(3 + 6)
    await system.until("SELECT count(*) = 3 FROM queue")  # of the dead worker
    await system.rows("DELETE FROM queue")
