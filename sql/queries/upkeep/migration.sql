-- Migrations: which are applied, and who is in their way.

-- name: migrate_applied
-- The migrations this database has.
SELECT number, name FROM pillarbox.migrations ORDER BY number

-- name: migrate_holders
-- The sessions that hold locks in our schema and since when, the oldest transaction first; of sessions we may not look into, only that. An
-- autovacuum is known by having no user, too: an ordinary role is not shown what kind of process it is.
SELECT a.pid, coalesce(nullif(a.application_name, ''), a.backend_type, CASE WHEN a.usesysid IS NULL THEN 'autovacuum worker' ELSE 'unnamed' END), coalesce(a.state, 'at work'),
       coalesce(extract(epoch FROM now() - a.xact_start)::integer::text, '?'),
       coalesce(a.backend_type = 'autovacuum worker', a.usesysid IS NULL)
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_stat_activity a ON a.pid = l.pid
 WHERE c.relnamespace = to_regnamespace('pillarbox') AND l.granted AND a.pid <> pg_backend_pid() AND a.datname = current_database()
 GROUP BY a.pid, a.usesysid, a.application_name, a.backend_type, a.state, a.xact_start
 ORDER BY a.xact_start NULLS FIRST
 LIMIT 5

-- name: migrate_literals
-- A backslash in a plain literal of this transaction is a backslash, whatever the database or the role prefers.
SET LOCAL standard_conforming_strings = on

-- name: migrate_lock
-- One step of one migration at a time, to the end of its transaction. Daemons, which only read this table, go on.
LOCK TABLE pillarbox.migrations IN SHARE ROW EXCLUSIVE MODE

-- name: migrate_present
-- A row when this database has been migrated before.
SELECT 1 FROM pg_class WHERE oid = to_regclass('pillarbox.migrations')

-- name: migrate_record
-- Notes, in the migration's own transaction, that it is done.
INSERT INTO pillarbox.migrations (number, name) VALUES (%(number)s, %(name)s)
