-- Wakes the workers of these partitions, in a transaction of its own: one notification a partition, never one a row. Its COMMIT
-- waits for no disk and no standby, for other commits that notify wait behind it. Whether each was sent.
SELECT pillarbox.notify_partition(partid) AS sent, set_config('synchronous_commit', 'off', true)
  FROM unnest(%(partids)s::text[]) AS partid
