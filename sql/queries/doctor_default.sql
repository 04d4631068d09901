-- Which partition ids lie in the default leaf, where mail without a leaf of its own goes, among its `batch` first rows.
SELECT metadata->>'_partid' AS partid, count(*) AS recipients
  FROM (SELECT metadata FROM pillarbox.queue_def_def LIMIT %(batch)s) AS rows
 GROUP BY 1
 ORDER BY 1
