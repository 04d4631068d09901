"""unserved — the partitions whose mail would wait, because no worker of queued.yaml serves them

Guarantees: PostgreSQL reads the conditions, as for `pillarbox doctor`; nothing is changed. A condition that cannot be
    used is left to its worker, which says so when it starts.
See: operate/doctor/conditions.py; doctor's check partition.served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from operate import partition_ids
from operate.doctor import workers
from operate.doctor.conditions import prove
from shared.postgres import coverage, database

if TYPE_CHECKING:
    from shared.config.queued.settings import QueuedConfig
    from shared.config.smtpd.settings import SmtpdConfig


async def unserved(connection: database.Connection, smtpd: SmtpdConfig, queued: QueuedConfig) -> list[str]:
    """A warning that names the partitions that mail can get and no worker selects; none where each has a worker."""
    partids = partition_ids.configured(smtpd)
    wheres = {worker.where for worker in queued.workers}
    try:
        proofs = [await prove(connection, where, partids, ()) for where in sorted(wheres)]
    except database.REFUSAL as error:
        return [f"PostgreSQL cannot say whether every partition has a worker: {database.reason(error)}"]
    missing = (
        coverage.unserved(partids, [proof.answers for proof in proofs])
        if all(proof.answers for proof in proofs)
        else []
    )
    if not missing:
        return []
    return [f"no worker serves {workers.names(missing)}: such mail waits; name it in a worker's `where` in queued.yaml"]
