-- The accounts' schema: which migrations it has. {schema} is its name, quoted.

-- name: accounts_present
-- A row where accounts are installed.
SELECT 1 FROM pg_class WHERE oid = to_regclass(%(table)s)

-- name: accounts_schema_make
-- Makes the schema if there is none.
CREATE SCHEMA IF NOT EXISTS {schema}

-- name: accounts_schema_present
-- A row where the schema exists.
SELECT 1 FROM pg_namespace WHERE nspname = %(schema)s

-- name: accounts_schema_drop
-- Drops the schema when nothing is in it any more.
DROP SCHEMA {schema}

-- name: accounts_schema_empty
-- Whether nothing is in the schema.
SELECT NOT EXISTS (SELECT FROM pg_class WHERE relnamespace = n.oid) AND NOT EXISTS (SELECT FROM pg_proc WHERE pronamespace = n.oid)
       AND NOT EXISTS (SELECT FROM pg_type WHERE typnamespace = n.oid)
  FROM pg_namespace n WHERE n.nspname = %(schema)s

-- name: accounts_path
-- Where the statements of a migration look names up, to the end of its transaction; functions keep it.
SELECT set_config('search_path', %(path)s, true)

-- name: accounts_turn
-- One installation or removal at a time, to the end of its transaction; only the owner can take this lock.
LOCK TABLE {schema}.account_migrations IN SHARE ROW EXCLUSIVE MODE

-- name: accounts_applied
-- The migrations that these accounts have.
SELECT number, name FROM {schema}.account_migrations ORDER BY number

-- name: accounts_record
-- Notes, in the migration's own transaction, that it is done.
INSERT INTO {schema}.account_migrations (number, name) VALUES (%(number)s, %(name)s)

-- name: accounts_count
-- How many accounts and tokens there are.
SELECT (SELECT count(*) FROM {schema}.accounts) AS accounts, (SELECT count(*) FROM {schema}.tokens) AS tokens
