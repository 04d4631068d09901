-- Recipients that fit a condition, in the order they came, from one id on.
SELECT q.id, q.messages__id AS message, q.state, q.ts AS received, q.size, q.priority, q.retry_count, q.next_retry, q.last_retry, q.last_error,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient, q.transportid AS transport, q.metadata->>'_partid' AS partition,
       q.metadata->>'_quarantineid' AS quarantine, q.jobid AS job, q.worker
  FROM pillarbox.queue_state q
 WHERE {condition} AND q.id > %(after)s::bigint AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
 ORDER BY q.id
 LIMIT %(limit)s::bigint
