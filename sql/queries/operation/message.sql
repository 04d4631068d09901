-- One message and its recipients, queued and finished.

-- name: message_attempts
-- Every try at a message's recipients, in order, since a day that comes before the first.
SELECT a.queue__id AS id, a.ts, a.retry_count, a.worker, a.remote, a.outcome, a.scope, a.uncertain, a.reply_code, a.reply_text, a.tls,
       a.source, extract(epoch FROM a.duration)::double precision AS seconds
  FROM pillarbox.attempts a WHERE a.messages__id = %(message)s AND a.ts >= {since}
 ORDER BY a.queue__id, a.id
 LIMIT %(limit)s::bigint

-- name: message_recipients
-- The recipients of a message as they are queued, or finished since a day; `own`: only where it was sent in the name of whom we act for.
-- The day is part of the text: of a value PostgreSQL would not know when it plans, and it would open every day of history.
SELECT * FROM (
    SELECT q.id, q.actionid, q.recipientlocalpart || '@' || q.recipientdomain AS address, lower(q.state COLLATE "C") AS state, q.retry_count,
           CASE WHEN q.state IN ('SCHEDULED', 'ACTIVE', 'DEFER', 'SENDING') THEN q.next_retry END AS next_retry, NULL::timestamptz AS finished,
           q.last_error, q.metadata, q.ts, q.size, q.priority, q.saslusername, q.serverid, q.senderip, m.msgid, m.subject,
           CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender
      FROM pillarbox.queue_state q LEFT JOIN pillarbox.messages m ON m.id = q.messages__id
     WHERE q.messages__id = %(message)s
    UNION ALL
    SELECT a.id, a.actionid, a.recipientlocalpart || '@' || a.recipientdomain, a.result, a.retry_count, NULL, a.finished, a.last_error, a.metadata,
           a.ts, a.size, a.priority, a.saslusername, a.serverid, a.senderip, a.msgid, a.subject,
           CASE WHEN a.senderdomain IS NULL THEN '' ELSE a.senderlocalpart || '@' || a.senderdomain END
      FROM pillarbox.archive a WHERE a.messages__id = %(message)s AND a.finished >= {since}
) AS r
 WHERE NOT %(own)s::boolean OR (r.saslusername = pillarbox.acting_for() AND r.serverid IN ('sql', 'http'))
 ORDER BY r.actionid, r.id
 LIMIT %(limit)s::bigint

-- name: message_cancel
-- Deletes what is left of a message that whom we act for has queued.
DELETE FROM pillarbox.own_mail WHERE message = %(message)s AND state <> 'HOLD' RETURNING id

-- name: message_keys
-- Which idempotency keys were used, and by what.
SELECT key, message, fingerprint FROM pillarbox.idempotency_known(%(application)s, %(keys)s)

-- name: message_list
-- Recipients that fit a condition, in the order they came, from one id on; `own`: only of what whom we act for has queued.
SELECT q.id, q.messages__id AS message, q.state, q.ts AS received, q.size, q.priority, q.retry_count, q.next_retry, q.last_retry, q.last_error,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient, q.transportid AS transport, q.metadata->>'_partid' AS partition,
       q.metadata->>'_quarantineid' AS quarantine, q.jobid, q.worker
  FROM pillarbox.queue_state q
 WHERE {condition} AND q.id > %(after)s::bigint
   AND (NOT %(own)s::boolean OR (q.saslusername = (SELECT pillarbox.acting_for()) AND q.serverid IN ('sql', 'http')))
 ORDER BY q.id
 LIMIT %(limit)s::bigint

-- name: message_own
-- What is queued of a message that whom we act for has queued.
SELECT id, state FROM pillarbox.own_mail WHERE message = %(message)s ORDER BY id

-- name: message_reschedule
-- Makes what was not tried yet of a message that whom we act for has queued due at another time; a time that has passed means now.
UPDATE pillarbox.own_mail SET next_retry = greatest(%(at)s::timestamptz, now())
 WHERE message = %(message)s AND state IN ('SCHEDULED', 'ACTIVE') AND retry_count = 0
RETURNING id
