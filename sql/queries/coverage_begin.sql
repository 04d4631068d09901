-- For this transaction: nothing can be written, and functions are found only where PostgreSQL or the owner of our tables
-- has put them.
SELECT set_config('transaction_read_only', 'on', true) AS looks, set_config('search_path', 'pg_catalog, pillarbox, pg_temp', true) AS finds
