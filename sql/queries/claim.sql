-- Takes up to `batch` due recipients of this worker's partitions: sets the token, counts the try and makes each row due
-- again by itself when the lease ends, before anything is sent.
--
-- {where} is the worker's own condition; it stands in the UPDATE too, so that both prune to the worker's leaves.
-- ORDER BY is exactly the index queue_due; MATERIALIZED keeps the planner from running the LIMIT more than once.
-- floor keeps the scan off the dead entries at the index's lower end (see queued/claim.py).
-- A row that still carries a token had its lease run out: that try has no result and never will, so it gets its attempt
-- row here.
WITH fresh AS MATERIALIZED (
    SELECT nextval('pillarbox.claim_token_seq') AS token
), due AS MATERIALIZED (
    SELECT id, token AS lost_token, worker AS lost_worker, last_retry AS lost_since
      FROM pillarbox.queue
     WHERE status = 'DELIVER' AND ({where})
       AND next_retry <= coalesce(%(now)s::timestamptz, now()) AND next_retry >= coalesce(%(floor)s::timestamptz, '-infinity')
       AND (lease_until IS NULL OR lease_until <= coalesce(%(now)s::timestamptz, now()))
     ORDER BY next_retry, id
     LIMIT %(batch)s
       FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    UPDATE pillarbox.queue q
       SET token = fresh.token, worker = %(worker)s, retry_count = q.retry_count + 1,
           last_retry = coalesce(%(now)s::timestamptz, now()), lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s
      FROM due, fresh
     WHERE q.status = 'DELIVER' AND ({where}) AND q.id = due.id
    RETURNING q.id, q.messages__id, q.actionid, q.ts, q.senderlocalpart, q.senderdomain, q.recipientlocalpart, q.recipientdomain,
              q.size, q.metadata->>'_partid' AS partid, q.transportid, q.jobid, q.retry_count, q.next_retry, q.token,
              due.lost_token, due.lost_worker, due.lost_since
), lost AS (
    INSERT INTO pillarbox.attempts (ts, queue__id, messages__id, retry_count, token, worker, partid, transportid, jobid,
                                    senderdomain, recipientdomain, size, outcome, scope, uncertain, duration)
    SELECT coalesce(%(now)s::timestamptz, now()), id, messages__id, retry_count - 1, lost_token, lost_worker, partid, transportid, jobid,
           senderdomain, recipientdomain, size, 'lease_expired', 'us', true, coalesce(%(now)s::timestamptz, now()) - lost_since
      FROM taken
     WHERE lost_token IS NOT NULL
)
SELECT id, messages__id, actionid, ts, senderlocalpart, senderdomain, recipientlocalpart, recipientdomain, size, partid,
       transportid, jobid, retry_count, next_retry, token, lost_token
  FROM taken
 ORDER BY next_retry, id
