-- Every table of the queue's tree: its bound, triggers, unique id, indexes and storage parameters, and how much of it is
-- dead. An index counts under its own name and that of each partitioned index it is part of.
SELECT c.relname::text AS name, t.isleaf AS leaf, coalesce(pg_get_expr(c.relpartbound, c.oid), '') AS bound,
       coalesce(c.reloptions, '{}') AS options,
       array(SELECT g.tgname::text FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgenabled IN ('O', 'A')) AS triggers,
       array(SELECT n.relname::text
               FROM pg_index i
              CROSS JOIN LATERAL (SELECT i.indexrelid AS oid UNION SELECT a.relid FROM pg_partition_ancestors(i.indexrelid) a) AS named
               JOIN pg_class n ON n.oid = named.oid
              WHERE i.indrelid = c.oid AND i.indisvalid) AS indexes,
       EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
                  AND a.attname = 'id') AS unique_id,
       coalesce(s.n_live_tup, 0) AS live, coalesce(s.n_dead_tup, 0) AS dead, pg_total_relation_size(c.oid) AS bytes
  FROM pg_partition_tree('pillarbox.queue') t JOIN pg_class c ON c.oid = t.relid
  LEFT JOIN pg_stat_user_tables s ON s.relid = c.oid
 ORDER BY t.level, c.relname
