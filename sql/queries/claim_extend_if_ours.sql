-- Heartbeat: the leases of recipients in hand start anew; returns those that are still ours, by id and token, and whether each
-- lease did.
--
-- A row that somebody else has locked (an operator in the middle of a hold) stays ours for as long as its lease says, but is
-- passed over: waiting for it would let all the other leases run out.
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
WITH hand AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS h(id, message, token)
), free AS MATERIALIZED (
    SELECT q.id, q.token FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND h.message = q.messages__id AND h.token = q.token
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
     ORDER BY q.id
       FOR NO KEY UPDATE OF q SKIP LOCKED
), extended AS (
    UPDATE pillarbox.queue q
       SET lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s
      FROM free f
     WHERE q.id = ANY(%(ids)s::bigint[]) AND {among} AND q.id = f.id AND q.token = f.token
    RETURNING q.id, q.token
)
SELECT q.id, q.token, (q.id, q.token) IN (SELECT e.id, e.token FROM extended e) AS extended
  FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND h.message = q.messages__id AND h.token = q.token
 WHERE q.id = ANY(%(ids)s::bigint[]) AND {among}
