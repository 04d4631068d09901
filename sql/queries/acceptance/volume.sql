-- Free space of PostgreSQL's volumes, as reported.

-- name: volume_figures
-- How much room PostgreSQL's volumes have, as reported; `fresh` is false where the reports have ended.
SELECT host, path, free, size, fresh, now() - seen AS age FROM pillarbox.volumes_seen ORDER BY free

-- name: volume_forget
-- Forgets what this host has reported, for it reports no more.
DELETE FROM pillarbox.volumes WHERE host = %(host)s

-- name: volume_report
-- Says how much room these volumes have now; its COMMIT waits for no disk, which has little room.
WITH unhurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true) AS word)
INSERT INTO pillarbox.volumes AS v (host, path, free, size, seen, beat)
SELECT %(host)s, m.path, m.free, m.size, now(), %(beat)s
  FROM unnest(%(paths)s::text[], %(free)s::bigint[], %(size)s::bigint[]) AS m(path, free, size), unhurried
ON CONFLICT (host, path) DO UPDATE SET free = excluded.free, size = excluded.size, seen = excluded.seen, beat = excluded.beat
