-- Releases locked recipients from hold: they are due now (trigger queue_released).
UPDATE pillarbox.queue q SET status = 'DELIVER'
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = 'HOLD'
RETURNING q.id, q.metadata->>'_partid' AS partid
