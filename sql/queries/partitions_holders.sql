-- Who holds locks on these tables and since when, the oldest transaction first.
SELECT a.pid, a.application_name, a.state, extract(epoch FROM now() - a.xact_start)::integer AS seconds
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE l.relation = ANY (%(tables)s::regclass[]::oid[]) AND l.granted AND a.pid <> pg_backend_pid()
 GROUP BY a.pid, a.application_name, a.state, a.xact_start
 ORDER BY a.xact_start
