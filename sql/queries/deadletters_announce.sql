-- Announces dead letters, in a transaction of its own whose COMMIT waits for nothing; whether each was sent. From half of the queue
-- of notifications on none is: `deadletters watch` reads the archive, and nothing of ours shall fill it up.
SELECT CASE WHEN pg_notification_queue_usage() < 0.5 THEN pg_notify('dead_message', id::text) IS NOT NULL ELSE false END AS sent,
       set_config('synchronous_commit', 'off', true)
  FROM unnest(%(ids)s::bigint[]) AS id
