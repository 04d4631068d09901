-- How many recipients each leaf holds of each partition id; reads every row there is.
SELECT c.relname::text AS leaf, q.partid, q.recipients
  FROM (SELECT tableoid, metadata->>'_partid' AS partid, count(*) AS recipients FROM pillarbox.queue_def GROUP BY 1, 2) AS q
  JOIN pg_class c ON c.oid = q.tableoid
 ORDER BY c.relname COLLATE "C", q.partid COLLATE "C"
