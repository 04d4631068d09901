-- Lists the columns that this database's table of history has.
SELECT attname::text AS name FROM pg_attribute
 WHERE attrelid = to_regclass('pillarbox.' || %(table)s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum
