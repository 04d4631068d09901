-- Makes of locked recipients what a command changed what it was before, and nothing else; a due time only where nothing was
-- tried since.
UPDATE pillarbox.queue q
   SET status = CASE WHEN u.verb IN ('hold', 'release', 'rescan') THEN (r.before->>'status')::pillarbox.queue_status ELSE q.status END,
       next_retry = CASE WHEN u.verb IN ('hold', 'release', 'rescan', 'retry', 'delay') AND q.retry_count = (r.before->>'tries')::integer
                         THEN greatest((r.before->>'next_retry')::timestamptz, now()) ELSE q.next_retry END,
       priority = CASE u.verb WHEN 'priority' THEN (r.before->>'priority')::smallint ELSE q.priority END,
       transportid = CASE WHEN u.verb = 'move' AND u.argument ? 'transport' THEN r.before->>'transport' ELSE q.transportid END,
       metadata = CASE WHEN u.verb IN ('hold', 'release', 'rescan')
                       THEN coalesce(q.metadata, '{}') - ARRAY['_quarantineid', '_holdreason']
                            || jsonb_strip_nulls(jsonb_build_object('_quarantineid', r.before->>'quarantine', '_holdreason', r.before->>'reason'))
                       WHEN u.verb = 'move' AND u.argument ? 'partition'
                       THEN coalesce(q.metadata, '{}') - '_partid' || jsonb_strip_nulls(jsonb_build_object('_partid', r.before->>'partition'))
                       ELSE q.metadata END
  FROM pillarbox.audit_rows r JOIN pillarbox.audit u ON u.id = r.audit__id, (SELECT set_config('pillarbox.restoring', 'yes', true)) AS restoring
 WHERE q.id = ANY (%(ids)s::bigint[]) AND r.audit__id = %(undoes)s::bigint AND r.queue__id = q.id
   AND r.messages__id = q.messages__id AND r.changed AND u.proven
RETURNING q.id, q.metadata->>'_partid' AS partid
