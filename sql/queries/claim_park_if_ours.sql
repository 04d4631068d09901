-- Parks claimed recipients that cannot be started soon: the claim is as if it had not been, and each is due again after its
-- own wait; returns those that were ours and are parked, by id and token. `last_error` says what is waited for, unless a try
-- has left its own.
--
-- A row that somebody else has locked is passed over; the caller comes again.
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
WITH hand AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[], %(seconds)s::float8[], %(reasons)s::text[])
        AS h(id, message, token, seconds, reason)
), free AS MATERIALIZED (
    SELECT q.id, q.token FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND h.message = q.messages__id AND h.token = q.token
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
     ORDER BY q.id
       FOR NO KEY UPDATE OF q SKIP LOCKED
)
UPDATE pillarbox.queue q
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = q.retry_count - 1,
       next_retry = coalesce(%(now)s::timestamptz, now()) + make_interval(secs => h.seconds),
       last_error = CASE WHEN q.last_error IS NULL OR q.last_error LIKE 'waiting: %%' THEN 'waiting: ' || h.reason ELSE q.last_error END
  FROM free f JOIN hand h ON h.id = f.id AND h.token = f.token
 WHERE q.id = ANY(%(ids)s::bigint[]) AND {among} AND q.id = f.id AND q.token = f.token
RETURNING q.id, h.token
