-- Gives locked recipients another priority.
UPDATE pillarbox.queue q SET priority = %(priority)s::smallint
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid
