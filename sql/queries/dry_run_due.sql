-- The first `most` recipients a claim would take next, in its order and with its columns, and the part of their content that
-- has the header.
--
-- {where} is the worker's own condition. It reads only: no lock, no token, nothing counted. Each class is one scan of its
-- index, as in claim.sql.
WITH urgent AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority > 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), fresh AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), retried AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
), bulk AS MATERIALIZED (
    SELECT id AS due_id FROM pillarbox.queue
     WHERE status = 'DELIVER' AND priority < 0 AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now())
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id LIMIT %(most)s
)
SELECT q.id, q.messages__id, q.actionid, q.ts, q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain, q.size,
       q.metadata->>'_partid' AS partid, q.transportid, q.jobid, q.priority, q.retry_count + 1 AS retry_count, q.next_retry,
       0 AS token, nullif(q.metadata - '_partid', '{}') AS said, q.noticed IS NOT NULL AS noticed, q.tableoid AS leaf,
       coalesce(%(now)s::timestamptz, now()) AS claimed_at,
       substr(m.content, 1, %(octets)s) AS head
  FROM (SELECT * FROM urgent UNION ALL SELECT * FROM fresh UNION ALL SELECT * FROM retried UNION ALL SELECT * FROM bulk) AS due
  JOIN pillarbox.queue q ON q.id = due_id AND ({where})
  LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
 ORDER BY sign(q.priority) DESC, q.next_retry, q.id
 LIMIT %(most)s
