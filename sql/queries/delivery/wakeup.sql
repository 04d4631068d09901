-- Notifications of due mail: who listens, where, and whether it is heard.

-- name: wakeup_concerns
-- Whether a wake-up for this partition id can concern a worker with this condition. Columns a notification does not tell
-- are NULL, so anything but a plain false counts as yes. An empty id stands for mail that has none.
SELECT ({where}) IS NOT FALSE
  FROM jsonb_populate_record(NULL::pillarbox.queue, jsonb_build_object('metadata', jsonb_build_object('_partid', nullif(%(partid)s::text, ''))))

-- name: wakeup_echo
-- Sends the echo a listener waits for, on the channel that all listen to; as wakeup_notify, its COMMIT waits for nothing.
SELECT pg_notify('pillarbox', %(echo)s), set_config('synchronous_commit', 'off', true)

-- name: wakeup_notify
-- Wakes the workers of these partitions, in a transaction of its own: one notification a partition, never one a row. Its COMMIT
-- waits for no disk and no standby, for other commits that notify wait behind it. Whether each was sent.
SELECT pillarbox.notify_partition(partid) AS sent, set_config('synchronous_commit', 'off', true)
  FROM unnest(%(partids)s::text[]) AS partid

-- name: wakeup_retry
-- Tells all workers that an operator retries mail, so that they test the destinations that they would leave alone. No partition id has
-- a colon. Left out while the queue of notifications is half full, as notify_partition says.
SELECT pg_notify('pillarbox', 'retry:'), set_config('synchronous_commit', 'off', true) WHERE pg_notification_queue_usage() < 0.5
