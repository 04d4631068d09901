-- The leaves of the queue with their bounds, an estimate of their rows, and their size on disk with indexes.
SELECT c.relname::text AS leaf, pg_get_expr(c.relpartbound, c.oid) AS bound, greatest(c.reltuples, 0)::bigint AS estimate,
       pg_total_relation_size(c.oid) AS bytes
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pillarbox.queue_def'::regclass
 ORDER BY c.relname COLLATE "C"
