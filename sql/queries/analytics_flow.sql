-- Attempts recorded so far, as this server's statistics have them; a day that is dropped takes its own away.
SELECT coalesce(sum(n_tup_ins), 0) AS attempts
  FROM pg_stat_user_tables
 WHERE schemaname = 'pillarbox' AND relname ^@ 'attempts'
