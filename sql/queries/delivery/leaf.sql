-- Leaves of the queue: tables that hold some of its partitions.

-- name: leaf_bounds
-- Every leaf of what is to be delivered, and its bound as PostgreSQL writes it.
SELECT c.relname::text AS name, pg_get_expr(c.relpartbound, c.oid) AS bound
  FROM pg_partition_tree('pillarbox.queue_def') t JOIN pg_class c ON c.oid = t.relid
 WHERE t.isleaf
 ORDER BY c.relname

-- name: leaf_create
-- Makes one leaf of the queue; false when exactly that leaf is already there.
SELECT pillarbox.queue_leaf_create(%(suffix)s, %(partids)s::text[])
