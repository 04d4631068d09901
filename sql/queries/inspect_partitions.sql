-- The table of partitions: how many recipients wait, are being sent, were deferred or are held in each leaf.
SELECT tableoid::regclass::text AS leaf, coalesce(metadata->>'_partid', '') AS partid,
       count(*) FILTER (WHERE state IN ('ACTIVE', 'SCHEDULED')) AS ready, count(*) FILTER (WHERE state = 'SENDING') AS sending,
       count(*) FILTER (WHERE state = 'DEFER') AS deferred, count(*) FILTER (WHERE state = 'HOLD') AS held
  FROM (SELECT q.tableoid, q.metadata, CASE WHEN q.status <> 'DELIVER' THEN q.status::text WHEN q.lease_until > now() THEN 'SENDING'
                                            WHEN q.next_retry <= now() THEN 'ACTIVE' ELSE 'DEFER' END AS state
          FROM pillarbox.queue q) AS seen
 GROUP BY 1, 2
 ORDER BY 1, 2
