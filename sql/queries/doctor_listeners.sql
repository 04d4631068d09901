-- Sessions in a transaction for longest: if one of them listens, it keeps the queue of notifications from being emptied.
SELECT pid, coalesce(nullif(application_name, ''), usename::text, 'unknown') AS name, now() - xact_start AS age
  FROM pg_stat_activity
 WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
 ORDER BY xact_start LIMIT 3
