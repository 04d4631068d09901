-- Locks the next recipients that fit a condition, in id order, for one batch of a command; `sending` says that a worker has
-- it in hand.
SELECT q.id, coalesce(q.lease_until > %(now)s, false) AS sending
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = ANY (%(statuses)s::pillarbox.queue_status[]) AND q.id > %(after)s::bigint AND q.id <= %(last)s::bigint
 ORDER BY q.id
 LIMIT %(batch)s::bigint
   FOR NO KEY UPDATE
