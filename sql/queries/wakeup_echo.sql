-- Sends the echo a listener waits for, on the channel that all listen to; as wakeup_notify, its COMMIT waits for nothing.
SELECT pg_notify('pillarbox', %(echo)s), set_config('synchronous_commit', 'off', true)
