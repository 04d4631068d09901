-- Replication slots: whose each is, whether anybody reads it, and how much it holds back.
SELECT s.slot_name::text AS slot, s.slot_type AS kind, coalesce(s.database::text, '-') AS database, s.active,
       CASE WHEN a.pid IS NULL THEN 'nobody' ELSE format('%s of %s', a.application_name, a.usename) END AS reader,
       greatest(age(s.xmin), age(s.catalog_xmin)) AS transactions, s.wal_status,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), s.restart_lsn), 0) END::bigint AS wal
  FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid
 ORDER BY wal DESC
