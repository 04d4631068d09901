"""bare — `python -m scripts.bench.accounts.bare URI BATCH`: takes tokens in the least that any collector does

Owns: the loop that the collector is compared with: SELECT … SKIP LOCKED, UPDATE, COMMIT, until none is left.
Guarantees: a process of its own, on the driver and the event loop of the collector; nothing is signed, written or
    waited for. Prints how many tokens it took.
"""

from __future__ import annotations

import sys

from shared import event_loop
from shared.postgres import database


async def _loop(uri: str, batch: int) -> int:
    connection = await database.connect(uri, "pillarbox bench")
    taken = 0
    try:
        while True:
            async with connection.transaction():
                rows = await database.fetch(connection, "bench_tokens_lock", batch=batch)
                if not rows:
                    return taken
                await database.fetch(connection, "bench_tokens_mark", ids=[row.id for row in rows])
            taken += len(rows)
    finally:
        await connection.close()


def main() -> int:
    """Take every token; the exit status."""
    _, uri, batch = sys.argv
    print(event_loop.run(_loop(uri, int(batch))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
