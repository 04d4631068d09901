-- Locks those of these recipients that are still where a command left them; `sending` says that a worker has it in hand. By
-- message too: ids are given again once a standby that lagged is promoted.
SELECT q.id, coalesce(q.lease_until > now(), false) AS sending
  FROM pillarbox.queue q JOIN unnest(%(ids)s::bigint[], %(messages)s::uuid[]) AS r(id, message) ON r.id = q.id AND r.message = q.messages__id
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
 ORDER BY q.id
   FOR NO KEY UPDATE OF q
