-- Which partitions a worker's condition selects.

-- name: coverage_begin
-- For this transaction: nothing can be written, and functions are found only where PostgreSQL or the owner of our tables
-- has put them.
SELECT set_config('transaction_read_only', 'on', true) AS looks, set_config('search_path', 'pg_catalog, pillarbox, pg_temp', true) AS finds

-- name: coverage_serves
-- A worker's condition evaluated for each partition id, with every column unknown but the id and the status: true, false,
-- or NULL where it depends on the unknown.
SELECT metadata->>'_partid' AS partid, ({where}) AS serves
  FROM (SELECT (jsonb_populate_record(NULL::pillarbox.queue, jsonb_build_object(
                    'status', 'DELIVER', 'metadata', CASE WHEN id IS NOT NULL THEN jsonb_build_object('_partid', id) END))).*
          FROM unnest(%(partids)s::text[]) AS p(id)) AS queue
