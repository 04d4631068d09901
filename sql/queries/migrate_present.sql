-- A row when this database has been migrated before.
SELECT 1 FROM pg_class WHERE oid = to_regclass('pillarbox.migrations')
