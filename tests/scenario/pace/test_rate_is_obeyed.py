"""test_rate_is_obeyed — mail for a destination with a rate leaves at that rate, and other mail is not slower

Owns: the proof, counted at the sink, that policies of `pacing` hold for a real worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.daemons.submit import numbered

if TYPE_CHECKING:
    from tests.fixtures.daemons.submit import Books
    from tests.fixtures.daemons.system import System

RATE, BURST, PACED, FREE = 8, 5, 60, 60
SLACK = 0.5  # seconds from a turn to the start of its attempt


async def test_a_limited_destination_gets_its_rate_and_others_are_not_limited(system: System, books: Books) -> None:
    smtpd = await system.smtpd()
    await books.submit(smtpd, numbered(PACED, ["paced.example"]))
    await books.submit(smtpd, numbered(FREE, ["free.example"], first=PACED))
    policy = {"id": "slow", "fields": ["destination"], "match": {"destination": ["paced.example"]}}
    await system.worker(books.sink.port, pacing={"policies": [{**policy, "rate": f"{RATE}/sec", "burst": BURST}]})
    await books.until_arrived(PACED + FREE)
    await system.until_finished()

    took = dict(
        await system.rows("""SELECT recipientlocalpart::text, extract(epoch FROM duration)::float8
                 FROM attempts JOIN archive a ON a.id = queue__id""")
    )
    arrived = sorted((r.at, r.recipients[0]) for r in books.sink.received)
    paced = [(at, at - took[to.partition("@")[0]]) for at, to in arrived if to.endswith("@paced.example")]
    # A turn is taken before its attempt begins, and the sink has the message before the attempt ends.
    for first, (_, begun) in enumerate(paced):
        for last, (ended, _) in enumerate(paced[first:], first):
            assert last - first + 1 <= BURST + RATE * (ended - begun + SLACK)
    assert paced[-1][0] - paced[0][1] >= (PACED - BURST) / RATE - SLACK
    assert max(at for at, to in arrived if to.endswith("@free.example")) < paced[-1][0]
    # Waiting did not count as a try: every recipient was tried once.
    assert await system.value("SELECT max(retry_count) FROM attempts") == 1
