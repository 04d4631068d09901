-- What an interrupted repartitioning left: its triggers on leaves, its constraint on the default leaf, its schema.
SELECT 'capture' AS kind, c.relname::text AS leaf
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE t.tgname = 'repartition_capture' AND c.relnamespace = 'pillarbox'::regnamespace
UNION ALL
SELECT 'shield', c.relname::text
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
 WHERE k.conname = 'repartition_shield' AND c.relnamespace = 'pillarbox'::regnamespace
UNION ALL
SELECT 'schema', 'pillarbox_repartition' WHERE to_regnamespace('pillarbox_repartition') IS NOT NULL
