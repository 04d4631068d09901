-- Lists the day partitions of a table of history: their oid, day, and pages now.
SELECT c.oid::bigint AS leaf, to_date(right(c.relname, 8), 'YYYYMMDD') AS day,
       (pg_relation_size(c.oid) / current_setting('block_size')::bigint)::bigint AS pages
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = to_regclass('pillarbox.' || %(table)s) AND c.relname ~ '_\d{8}$' AND NOT i.inhdetachpending
 ORDER BY day
