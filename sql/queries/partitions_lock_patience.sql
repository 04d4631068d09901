-- This transaction waits for a lock for so long, and may stay idle with it for as long as a repartitioning takes.
SELECT set_config(name, CASE name WHEN 'lock_timeout' THEN %(milliseconds)s::text ELSE '0' END, true)
  FROM pg_settings WHERE name IN ('lock_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
