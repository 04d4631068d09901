-- A session that only looks, bounded in time and in waiting, and finds functions only where the owner of our tables or
-- PostgreSQL itself has put them.
SELECT set_config('default_transaction_read_only', 'on', false) AS looks, set_config('statement_timeout', %(seconds)s || 's', false) AS bound,
       set_config('lock_timeout', '2s', false) AS waits, set_config('search_path', 'pg_catalog, pillarbox, pg_temp', false) AS finds
