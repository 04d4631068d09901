-- Keeps what recipients are before a command changes them, so that it can be undone and traced.
INSERT INTO pillarbox.audit_rows (audit__id, queue__id, messages__id, before)
SELECT %(audit)s::bigint, q.id, q.messages__id,
       jsonb_build_object('status', q.status, 'next_retry', q.next_retry, 'tries', q.retry_count, 'priority', q.priority,
                          'transport', q.transportid, 'partition', q.metadata->>'_partid', 'quarantine', q.metadata->>'_quarantineid',
                          'reason', q.metadata->>'_holdreason')
  FROM pillarbox.queue q
 WHERE q.id = ANY (%(ids)s::bigint[])
