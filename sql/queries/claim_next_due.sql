-- Seconds until the earliest recipient of this worker's partitions that waits for its time is due; NULL when none waits.
-- One look at the lower end of each class's index.
SELECT extract(epoch FROM min(earliest) - coalesce(%(now)s::timestamptz, now())) AS seconds FROM (
    SELECT min(next_retry) AS earliest FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
    UNION ALL
    SELECT min(next_retry) FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority < 0 AND ({where}) AND next_retry > coalesce(%(now)s::timestamptz, now())
) AS classes
