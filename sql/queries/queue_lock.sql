-- Locks those of these recipients that are still where a command left them; `sending` says that a worker has it in hand.
SELECT q.id, coalesce(q.lease_until > now(), false) AS sending FROM pillarbox.queue q
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
 ORDER BY q.id
   FOR NO KEY UPDATE
