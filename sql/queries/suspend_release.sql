-- Makes due what was parked for a suspend that is no longer: up to `batch` rows of this worker's partitions; how many.
-- A recipient that was never tried says in last_error why it waits; of those tried before, whose last_error is a server's, all
-- that are due within the longest time of parking come now. What fits is asked by the columns; site and source are none.
WITH parked AS MATERIALIZED (
    SELECT q.id FROM pillarbox.queue q
     WHERE q.status = 'DELIVER' AND ({where}) AND q.lease_until IS NULL
       AND q.next_retry > coalesce(%(now)s::timestamptz, now())
       AND q.next_retry <= coalesce(%(now)s::timestamptz, now()) + make_interval(secs => %(longest)s::double precision)
       AND (q.retry_count > 0 OR starts_with(q.last_error, %(reason)s))
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'transport', q.transportid)
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'destination', q.recipientdomain)
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'sender', q.senderdomain)
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'tenant', q.metadata->>'tenant')
       AND pillarbox.suspend_fits(%(selection)s::jsonb -> 'job', q.jobid)
     LIMIT %(batch)s
       FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    UPDATE pillarbox.queue q SET next_retry = coalesce(%(now)s::timestamptz, now())
      FROM parked p WHERE q.status = 'DELIVER' AND ({where}) AND q.id = p.id
    RETURNING coalesce(q.metadata->>'_partid', '') AS partid
), woken AS (
    SELECT pillarbox.notify_partition(partid) FROM (SELECT DISTINCT partid FROM moved) AS partids
)
SELECT (SELECT count(*) FROM moved) AS released, (SELECT count(*) FROM woken) AS partitions
