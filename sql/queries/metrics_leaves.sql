-- How many rows each leaf of the queue has, as the cumulative statistics estimate it: nothing of the leaves is read.
SELECT c.relname AS leaf, pg_stat_get_live_tuples(c.oid) AS recipients
  FROM pg_partition_tree('pillarbox.queue') AS t JOIN pg_class c ON c.oid = t.relid
 WHERE t.isleaf
 ORDER BY c.relname
