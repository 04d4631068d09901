-- The queue as operators list, group, show and change it.

-- name: queue_any
-- Whether any mail waits, held mail included. What was deleted goes nowhere, though its rows stay until maintenance.
SELECT EXISTS (SELECT FROM pillarbox.queue WHERE status <> 'DELETE') AS some

-- name: queue_changed
-- The next recipients that a command changed.
SELECT r.queue__id AS id, r.messages__id AS message FROM pillarbox.audit_rows r
 WHERE r.audit__id = %(audit)s::bigint AND r.changed AND r.queue__id > %(after)s::bigint
 ORDER BY r.queue__id
 LIMIT %(batch)s::bigint

-- name: queue_content
-- The beginning of a message's content, so that a large one is not read to show its header.
SELECT size, substring(content FROM 1 FOR %(most)s::integer) AS content FROM pillarbox.messages WHERE id = %(message)s

-- name: queue_copied
-- Those of these recipients that the same command has copied before it was cut off, or copies at this moment: its other runs
-- since the last one that came to its end.
SELECT DISTINCT r.queue__id AS id
  FROM pillarbox.audit mine
  JOIN pillarbox.audit other ON other.verb = mine.verb AND other.condition = mine.condition AND other.argument = mine.argument AND other.id <> mine.id
  JOIN pillarbox.audit_rows r ON r.audit__id = other.id AND r.changed AND r.queue__id = ANY (%(ids)s::bigint[])
  JOIN pillarbox.queue q ON q.id = r.queue__id AND q.messages__id = r.messages__id
 WHERE mine.id = %(audit)s::bigint AND (other.finished IS NULL OR other.finished > mine.ts)
   AND other.id > coalesce((SELECT max(ended.id) FROM pillarbox.audit ended
                             WHERE ended.verb = mine.verb AND ended.condition = mine.condition AND ended.argument = mine.argument
                               AND ended.finished <= mine.ts), 0)

-- name: queue_copy
-- Releases copies of locked recipients, to themselves or to another address, and leaves the held ones where they are.
SELECT id, partid FROM pillarbox.queue_release_copies(%(ids)s::bigint[], %(localpart)s::text, %(domain)s::text)

-- name: queue_count
-- How many recipients fit a condition, how large they are together, the oldest of them, and the highest id: what comes
-- later is not meant.
SELECT count(*) AS recipients, count(DISTINCT q.messages__id) AS messages, coalesce(sum(q.size), 0)::bigint AS bytes, min(q.ts) AS oldest,
       coalesce(max(q.id), 0) AS last, count(*) FILTER (WHERE q.lease_until > %(now)s) AS sending
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])

-- name: queue_count_some
-- How many recipients fit a condition, counted up to so many; NULL: all of them. An index answers where the condition is in it.
SELECT count(*) AS recipients FROM (SELECT FROM pillarbox.queue_state q WHERE {condition} LIMIT %(most)s::bigint) AS found

-- name: queue_due
-- Makes locked recipients due at another time; a time that has passed means now.
UPDATE pillarbox.queue q SET next_retry = greatest(%(at)s::timestamptz, now())
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid

-- name: queue_end
-- Deletes or bounces locked recipients: a worker finishes them, with their archive rows, at its next round of maintenance.
UPDATE pillarbox.queue q SET status = %(status)s::pillarbox.queue_status
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status IN ('HOLD', 'DELIVER')
RETURNING q.id, NULL AS partid

-- name: queue_group
-- Recipients that fit a condition, by the values of some columns: how many, how large, how old.
-- As text[]: an array of envelope_text is a type of this database alone, which a client gets as one string. Grouped by the
-- columns and not by the array, whose comparison takes four times as long.
SELECT ARRAY[{columns}]::text[] AS value, count(*) AS recipients, count(DISTINCT q.messages__id) AS messages, coalesce(sum(q.size), 0)::bigint AS bytes,
       min(q.ts) AS oldest, min(q.next_retry) AS next_retry
  FROM pillarbox.queue_state q
 WHERE {condition}
 GROUP BY {columns}
 ORDER BY 2 DESC, 1
 LIMIT %(limit)s::bigint

-- name: queue_hold
-- Puts locked recipients on hold, in a quarantine and with a reason where one is given.
UPDATE pillarbox.queue q
   SET status = 'HOLD',
       metadata = coalesce(q.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('_quarantineid', %(quarantine)s::text, '_holdreason', %(reason)s::text))
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = 'DELIVER'
RETURNING q.id, NULL AS partid

-- name: queue_ids
-- The least and the greatest id of the queue after this one; NULL where there is none.
SELECT min(id) AS least, max(id) AS greatest FROM pillarbox.queue WHERE id > %(after)s::bigint

-- name: queue_list
-- Recipients that fit a condition, in the order they came, from one id on.
SELECT q.id, q.messages__id AS message, q.state, q.ts AS received, q.size, q.priority, q.retry_count, q.next_retry, q.last_retry, q.last_error,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient, q.transportid AS transport, q.metadata->>'_partid' AS partition,
       q.metadata->>'_quarantineid' AS quarantine, q.jobid, q.worker
  FROM pillarbox.queue_state q
 WHERE {condition} AND q.id > %(after)s::bigint AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
 ORDER BY q.id
 LIMIT %(limit)s::bigint

-- name: queue_lock
-- Locks those of these recipients that are still where a command left them; `sending` says that a worker has claimed it. By
-- message too: ids are given again once a standby that lagged is promoted.
SELECT q.id, coalesce(q.lease_until > now(), false) AS sending
  FROM pillarbox.queue q JOIN unnest(%(ids)s::bigint[], %(messages)s::uuid[]) AS r(id, message) ON r.id = q.id AND r.message = q.messages__id
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
 ORDER BY q.id
   FOR NO KEY UPDATE OF q

-- name: queue_message_of
-- The message that a recipient, still queued or finished, belongs to.
SELECT messages__id AS message FROM pillarbox.queue WHERE id = %(id)s::bigint
UNION ALL
SELECT messages__id FROM pillarbox.archive WHERE id = %(id)s::bigint
 LIMIT 1

-- name: queue_messages_with_msgid
-- The messages, queued or finished, with this Message-ID: by one lookup in the index of the bodies, and one for each day of the archive.
SELECT m.id AS message FROM pillarbox.messages m
 WHERE hashtextextended(m.msgid, 0) = hashtextextended(%(msgid)s::text COLLATE "C", 0) AND m.msgid = %(msgid)s::text
 UNION
SELECT a.messages__id FROM pillarbox.archive a
 WHERE hashtextextended(a.msgid, 0) = hashtextextended(%(msgid)s::text COLLATE "C", 0) AND a.msgid = %(msgid)s::text
 ORDER BY message

-- name: queue_move
-- Moves locked recipients to another transport, another partition, or both; one that is not given stays.
UPDATE pillarbox.queue q
   SET transportid = coalesce(%(transport)s::text, q.transportid),
       metadata = coalesce(q.metadata, '{}') || jsonb_strip_nulls(jsonb_build_object('_partid', %(partition)s::text))
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid

-- name: queue_priority
-- Gives locked recipients another priority.
UPDATE pillarbox.queue q SET priority = %(priority)s::smallint
 WHERE q.id = ANY (%(ids)s::bigint[])
RETURNING q.id, q.metadata->>'_partid' AS partid

-- name: queue_release
-- Releases locked recipients from hold: they are due now (trigger queue_released).
UPDATE pillarbox.queue q SET status = 'DELIVER'
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.status = 'HOLD'
RETURNING q.id, q.metadata->>'_partid' AS partid

-- name: queue_remember
-- Keeps what recipients are before a command changes them, so that it can be undone and traced.
SELECT pillarbox.audit_remember(%(audit)s::bigint, %(ids)s::bigint[])

-- name: queue_restore
-- Makes of locked recipients what a command changed what it was before, and nothing else; a due time only where nothing was
-- tried since. OFFSET 0 has PostgreSQL look each recipient of the batch up in the record, by its key: a plan of statistics from
-- before the command, or one kept from an earlier batch, may otherwise read the whole record for each batch.
UPDATE pillarbox.queue q
   SET status = CASE WHEN u.verb IN ('hold', 'release', 'rescan', 'recover') THEN (r.before->>'status')::pillarbox.queue_status ELSE q.status END,
       next_retry = CASE WHEN u.verb IN ('hold', 'release', 'rescan', 'retry', 'delay', 'recover') AND q.retry_count = (r.before->>'tries')::integer
                         THEN greatest((r.before->>'next_retry')::timestamptz, now()) ELSE q.next_retry END,
       priority = CASE u.verb WHEN 'priority' THEN (r.before->>'priority')::smallint ELSE q.priority END,
       transportid = CASE WHEN u.verb = 'move' AND u.argument ? 'transport' THEN r.before->>'transport' ELSE q.transportid END,
       metadata = CASE WHEN u.verb IN ('hold', 'release', 'rescan', 'recover')
                       THEN coalesce(q.metadata, '{}') - ARRAY['_quarantineid', '_holdreason']
                            || jsonb_strip_nulls(jsonb_build_object('_quarantineid', r.before->>'quarantine', '_holdreason', r.before->>'reason'))
                       WHEN u.verb = 'move' AND u.argument ? 'partition'
                       THEN coalesce(q.metadata, '{}') - '_partid' || jsonb_strip_nulls(jsonb_build_object('_partid', r.before->>'partition'))
                       ELSE q.metadata END
  FROM unnest(%(ids)s::bigint[]) AS batch(id)
 CROSS JOIN LATERAL (SELECT * FROM pillarbox.audit_rows
                      WHERE audit__id = %(undoes)s::bigint AND queue__id = batch.id OFFSET 0) AS r
  JOIN pillarbox.audit u ON u.id = r.audit__id, (SELECT set_config('pillarbox.restoring', 'yes', true)) AS restoring
 WHERE q.id = ANY (%(ids)s::bigint[]) AND q.id = r.queue__id AND r.messages__id = q.messages__id AND r.changed
RETURNING q.id, q.metadata->>'_partid' AS partid

-- name: queue_restore_deleted
-- Brings back those of these recipients that a command deleted and whose bodies are kept, as new rows.
SELECT id, partid FROM pillarbox.queue_restore_deleted(%(audit)s::bigint, %(ids)s::bigint[])

-- name: queue_shape
-- Recipients that fit a condition by destination and age, the fullest destinations first; bucket 0 is below the first
-- bound (minutes). The row without a destination is all of them together.
WITH counted AS (
    SELECT q.recipientdomain AS domain, width_bucket(extract(epoch FROM %(now)s::timestamptz - q.ts) / 60, %(bounds)s::numeric[]) AS bucket, count(*) AS n
      FROM pillarbox.queue q
     WHERE {condition}
     GROUP BY 1, 2
), fullest AS (
    SELECT domain, sum(n) AS total FROM counted GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s::bigint
), lines AS (
    SELECT NULL::text AS domain, bucket, sum(n) AS n, (SELECT sum(n) FROM counted) AS total FROM counted GROUP BY bucket
    UNION ALL
    SELECT domain, bucket, n, total FROM counted JOIN fullest USING (domain)
)
SELECT domain, jsonb_object_agg(bucket, n) AS counts, min(total)::bigint AS total
  FROM lines
 GROUP BY domain
 ORDER BY domain IS NULL DESC, total DESC, domain

-- name: queue_take
-- Locks the next recipients that fit a condition, in id order, for one batch of a command; `sending` says that a worker has
-- it in hand.
SELECT q.id, coalesce(q.lease_until > %(now)s, false) AS sending
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = ANY (%(statuses)s::pillarbox.queue_status[]) AND q.id > %(after)s::bigint AND q.id <= %(last)s::bigint
 ORDER BY q.id
 LIMIT %(batch)s::bigint
   FOR NO KEY UPDATE

-- name: queue_top
-- Recipients that fit a condition by state, and by destination the `limit` fullest, in one reading of the queue.
WITH counted AS (
    SELECT coalesce(q.state, q.recipientdomain) AS value, grouping(q.state) = 0 AS is_state, count(*) AS recipients,
           coalesce(sum(q.size), 0)::bigint AS bytes, min(q.ts) AS oldest
      FROM pillarbox.queue_state q
     WHERE {condition}
     GROUP BY GROUPING SETS ((q.state), (q.recipientdomain))
)
(SELECT * FROM counted WHERE is_state)
 UNION ALL
(SELECT * FROM counted WHERE NOT is_state ORDER BY recipients DESC, value LIMIT %(limit)s::bigint)
 ORDER BY is_state DESC, recipients DESC, value

-- name: queue_trace
-- Everything that ever happened to these messages, for each recipient in the order it happened.
-- The archive is read once: to plan a look into each of its days is what takes most of the time.
WITH done AS MATERIALIZED (
    SELECT * FROM pillarbox.archive WHERE messages__id = ANY (%(messages)s::uuid[])
)
SELECT * FROM (
    SELECT q.ts, q.id, q.recipientlocalpart || '@' || q.recipientdomain AS recipient, 'received' AS event,
           concat_ws(' ', 'from', coalesce(q.saslusername, q.senderip), 'by server ' || q.serverid, 'as <' || q.msgid || '>',
                     to_json(q.subject)) AS details, NULL AS conversation
      FROM (SELECT w.id, w.ts, w.recipientlocalpart, w.recipientdomain, w.saslusername, w.senderip, w.serverid, m.msgid, m.subject
              FROM pillarbox.queue w LEFT JOIN pillarbox.messages m ON m.id = w.messages__id WHERE w.messages__id = ANY (%(messages)s::uuid[])
            UNION ALL
            SELECT id, ts, recipientlocalpart, recipientdomain, saslusername, senderip, serverid, msgid, subject FROM done) AS q
    UNION ALL
    SELECT a.ts, a.queue__id, '@' || a.recipientdomain, a.outcome,
           concat_ws(' ', 'try', a.retry_count, 'by', a.worker, 'at ' || a.remote, CASE WHEN a.uncertain THEN '(uncertain)' END,
                     '- ' || a.reply_text), a.conversation
      FROM pillarbox.attempts a WHERE a.messages__id = ANY (%(messages)s::uuid[])
    UNION ALL
    SELECT u.ts, r.queue__id, NULL, u.verb, concat_ws(' ', 'by', coalesce(u.operator, u.who), '(audit ' || u.id || ')', '- ' || u.reason), NULL
      FROM pillarbox.audit_rows r JOIN pillarbox.audit u ON u.id = r.audit__id WHERE r.messages__id = ANY (%(messages)s::uuid[]) AND r.changed
    UNION ALL
    SELECT f.finished, f.id, f.recipientlocalpart || '@' || f.recipientdomain, f.result,
           concat_ws(' ', 'after', f.retry_count, CASE f.retry_count WHEN 1 THEN 'try' ELSE 'tries' END, '- ' || f.last_error), NULL
      FROM done f
    UNION ALL
    SELECT NULL, q.id, q.recipientlocalpart || '@' || q.recipientdomain, lower(q.state COLLATE "C"),
           concat_ws(' ', CASE WHEN q.state IN ('HOLD', 'DELETE', 'BOUNCE') THEN 'now'
                               ELSE to_char(q.next_retry AT TIME ZONE 'UTC', '"now, next try at" YYYY-MM-DD"T"HH24:MI:SS"Z"') END, '- ' || q.last_error), NULL
      FROM pillarbox.queue_state q WHERE q.messages__id = ANY (%(messages)s::uuid[])
) AS history
 ORDER BY id, ts NULLS LAST
 LIMIT %(limit)s::bigint
