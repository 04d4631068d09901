-- Who holds locks in our schema and since when, the oldest transaction first; of sessions we may not look into, only that. An
-- autovacuum is known by having no user, too: an ordinary role is not shown what kind of process it is.
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type, CASE WHEN a.usesysid IS NULL THEN 'autovacuum worker' ELSE 'unnamed' END), coalesce(a.state, 'at work'),
       coalesce(extract(epoch FROM now() - a.xact_start)::integer::text, '?'),
       coalesce(a.backend_type = 'autovacuum worker', a.usesysid IS NULL)
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE c.relnamespace = to_regnamespace('pillarbox') AND l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
 GROUP BY a.pid, a.usesysid, a.application_name, a.backend_type, a.state, a.xact_start
 ORDER BY a.xact_start NULLS FIRST
 LIMIT 5
