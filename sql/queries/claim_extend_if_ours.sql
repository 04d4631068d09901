-- Heartbeat: the leases of recipients in hand start anew; returns the ids that are still ours, and whether each lease did.
--
-- A row that somebody else has locked (an operator in the middle of a hold) stays ours for as long as its lease says, but is
-- passed over: waiting for it would let all the other leases run out.
WITH hand AS (
    SELECT * FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS h(id, token)
), free AS MATERIALIZED (
    SELECT q.id, q.token FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND h.token = q.token
     ORDER BY q.id
       FOR NO KEY UPDATE OF q SKIP LOCKED
), extended AS (
    UPDATE pillarbox.queue q
       SET lease_until = coalesce(%(now)s::timestamptz, now()) + %(lease)s
      FROM free f
     WHERE q.id = f.id AND q.token = f.token
    RETURNING q.id
)
SELECT q.id, q.id IN (SELECT e.id FROM extended e) AS extended FROM pillarbox.queue q JOIN hand h ON h.id = q.id AND h.token = q.token
