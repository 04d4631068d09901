-- Seconds until the earliest recipient of this worker's partitions that waits for its time is due; NULL when none waits.
-- Ordered like the index queue_due, so it reads one entry.
SELECT extract(epoch FROM min(next_retry) - now()) AS seconds
  FROM pillarbox.queue
 WHERE status = 'DELIVER' AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
