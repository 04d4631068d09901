-- Figures of the queue for Prometheus.

-- name: metrics_leaves
-- How many rows each leaf of the queue has, as the cumulative statistics estimate it: nothing of the leaves is read or locked, and
-- every login may ask. A crash of PostgreSQL empties these statistics; until a row changes, the planner's estimate stands in.
SELECT c.relname AS leaf,
       CASE WHEN pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid) > 0
            THEN pg_stat_get_live_tuples(c.oid) ELSE greatest(c.reltuples, 0)::bigint END AS recipients
  FROM pg_partition_tree('pillarbox.queue') AS t JOIN pg_class c ON c.oid = t.relid
 WHERE t.isleaf
 ORDER BY c.relname

-- name: metrics_queue
-- What this worker's condition selects, counted by state and partition id to a bound: of each class of priority at most
-- `most` recipients that are due and `most` that are not, the earliest of each, and the `most` longest on hold. Ordinary mail
-- that has waited before is a class of its own, as its index is (queue_due_retried). `oldest` is the seconds since receipt of
-- the oldest among them, `overdue` how long those that wait for a claim have been due.
--
-- However long the queue, that many index entries are read and no more; as with a claim, entries that the condition does not
-- select are read besides where it does not cut along partitions. What is on hold is bounded before the condition, because
-- it is one leaf for all. The states are those of the view queue_state. `series` bounds the answer whatever ids there are.
WITH clock AS MATERIALIZED (
    SELECT coalesce(%(now)s::timestamptz, now()) AS at
), seen AS (
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority > 0 AND ({where}) AND next_retry <= (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority = 0 AND ({where})
        AND last_error IS NULL AND next_retry <= (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority = 0 AND ({where})
        AND last_error IS NOT NULL AND next_retry <= (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority < 0 AND ({where}) AND next_retry <= (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority > 0 AND ({where}) AND next_retry > (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority = 0 AND ({where})
        AND last_error IS NULL AND next_retry > (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority = 0 AND ({where})
        AND last_error IS NOT NULL AND next_retry > (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count FROM pillarbox.queue
      WHERE status = 'DELIVER' AND priority < 0 AND ({where}) AND next_retry > (SELECT at FROM clock)
      ORDER BY next_retry, id LIMIT %(most)s)
    UNION ALL
    (SELECT status, metadata, ts, next_retry, lease_until, retry_count
       FROM (SELECT * FROM pillarbox.queue WHERE status = 'HOLD' ORDER BY ts LIMIT %(most)s) AS held WHERE ({where}))
)
SELECT state, partid, count(*) AS recipients, extract(epoch FROM at - min(ts)) AS oldest,
       extract(epoch FROM at - min(next_retry) FILTER (WHERE state = 'ACTIVE')) AS overdue
  FROM (SELECT at, ts, next_retry, metadata->>'_partid' AS partid,
               CASE WHEN status <> 'DELIVER' THEN status::text
                    WHEN lease_until > at THEN 'SENDING'
                    WHEN next_retry <= at THEN 'ACTIVE'
                    WHEN retry_count = 0 THEN 'SCHEDULED'
                    ELSE 'DEFER' END AS state
          FROM seen, clock) AS classed
 GROUP BY at, state, partid
 ORDER BY recipients DESC, state, partid LIMIT %(series)s

-- name: metrics_unserved
-- Mail that no living worker serves: what maintenance noted and no worker has withdrawn for so long that every one has had its
-- beat since. The partitions whose mail has been due longest, at most `series`.
SELECT leaf, partid, count(*) AS recipients, extract(epoch FROM now() - min(due)) AS overdue
  FROM pillarbox.unserved
 WHERE noted < now() - %(grace)s::interval
 GROUP BY leaf, partid
 ORDER BY min(due), leaf, partid LIMIT %(series)s
