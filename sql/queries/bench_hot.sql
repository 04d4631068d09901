-- The share of updates of queue rows that wrote no index entry.
SELECT coalesce(sum(n_tup_hot_upd) / nullif(sum(n_tup_upd), 0), 0)::float8 AS share
  FROM pg_stat_user_tables
 WHERE schemaname = 'pillarbox' AND relname LIKE 'queue\_def\_%'
