-- The archive: finished recipients for people who look for them.

-- name: archive_find
-- Finished recipients that fit a condition, the latest first, within a stretch of time and before a place in the list. The stretch
-- leads to the days, and within them to the pages by archive_xact.
SELECT q.id, q.messages__id AS message, q.finished, q.result, q.ts AS received, q.size, q.retry_count, q.last_error, q.subject, q.msgid,
       CASE WHEN q.senderdomain IS NULL THEN '' ELSE q.senderlocalpart || '@' || q.senderdomain END AS sender,
       q.recipientlocalpart || '@' || q.recipientdomain AS recipient
  FROM pillarbox.archive q
 WHERE {condition} AND q.finished >= %(since)s AND q.finished < %(until)s
   AND (q.finished, q.id) < (%(before)s::timestamptz, %(id)s::bigint)
 ORDER BY q.finished DESC, q.id DESC
 LIMIT %(limit)s::bigint

-- name: archive_oldest
-- Midnight (UTC) of the oldest day of the archive.
SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')::timestamp AT TIME ZONE 'UTC') AS at
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'pillarbox.archive'::regclass AND c.relname ~ '_[0-9]{8}$'
