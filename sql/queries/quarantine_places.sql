-- Where these recipients are: their state in the queue, or how and when they finished.
SELECT q.id, q.state::text AS state, NULL::timestamptz AS finished FROM pillarbox.queue_state q WHERE q.id = ANY (%(ids)s::bigint[])
UNION ALL
SELECT a.id, a.result::text, a.finished FROM pillarbox.archive a WHERE a.id = ANY (%(ids)s::bigint[])
