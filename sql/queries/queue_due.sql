-- Makes locked recipients due at another time; a time that has passed means now.
UPDATE pillarbox.queue q SET next_retry = greatest(%(at)s::timestamptz, now())
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid
