-- Which worker finished how many recipients, of which partitions.
SELECT worker, array_agg(DISTINCT coalesce(metadata->>'_partid', 'NULL')) AS partids, count(*) AS recipients
  FROM pillarbox.archive
 WHERE result = 'success'
 GROUP BY worker
 ORDER BY worker
