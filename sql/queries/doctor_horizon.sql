-- Who keeps vacuum from removing dead rows of this database, the oldest first: open transactions with a snapshot or a
-- number of their own, prepared ones, and standbys that report theirs.
SELECT what, who, age FROM (
    SELECT CASE WHEN backend_type = 'walsender' THEN 'standby' ELSE 'transaction' END AS what,
           format('pid %%s %%s %%s (%%s)', pid, usename, coalesce(nullif(application_name, ''), '-'), state) AS who,
           now() - coalesce(xact_start, backend_start) AS age
      FROM pg_stat_activity
     WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL) AND pid <> pg_backend_pid()
       AND backend_type NOT IN ('autovacuum worker', 'autovacuum launcher') AND (datname IS NULL OR datname = current_database())
    UNION ALL
    SELECT 'prepared transaction', format('%%s of %%s', gid, owner), now() - prepared FROM pg_prepared_xacts
     WHERE database = current_database()
) AS holders
 WHERE age >= %(age)s
 ORDER BY age DESC LIMIT 10
