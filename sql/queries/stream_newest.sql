-- The highest id of an attempt since then that can be seen, above one that was seen before.
SELECT coalesce(max(a.id), 0) AS seen FROM pillarbox.attempts a WHERE a.ts >= %(since)s::timestamptz AND a.id > %(after)s
