-- Deletes or bounces locked recipients: a worker finishes them, with their archive rows, at its next round of maintenance.
UPDATE pillarbox.queue q SET status = %(status)s::pillarbox.queue_status
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status IN ('HOLD', 'DELIVER')
RETURNING q.id, NULL AS partid
