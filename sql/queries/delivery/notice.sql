-- The outbox of notifications to senders.

-- name: notice_copy
-- Queues the copy of a notification for the operator.
SELECT pillarbox.notice_copy(%(recipient)s::text, %(content)s, %(transport)s, %(smtputf8)s, %(requiretls)s) AS message

-- name: notice_discard
-- Drops `batch` notices where none are to be sent, and says how many. With ARRAY, PostgreSQL reads one batch. With a plain subquery
-- it can read another batch for each notice, and drops all of them.
WITH dropped AS (
    DELETE FROM pillarbox.notices
     WHERE id = ANY (ARRAY(SELECT id FROM pillarbox.notices ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED))
    RETURNING 1
)
SELECT count(*) AS notices FROM dropped

-- name: notice_due
-- The longest due of the notices that have waited for longer than `gather`; `floor` as in notice_next. Asked before the lock, which
-- is a write: a worker without notices writes nothing.
SELECT due FROM pillarbox.notices
 WHERE due >= coalesce(%(floor)s::timestamptz, '-infinity')
   AND due <= coalesce(%(now)s::timestamptz, now()) - %(gather)s::interval ORDER BY due, id LIMIT 1

-- name: notice_elect
-- Whether this transaction is the one that sends notices now; held until it ends, behind a pooler too.
SELECT pillarbox.lock_try('notices')

-- name: notice_hold_back_sender
-- Lets notices of a sender wait until `due`, `batch` at most, and says how many that are.
WITH held AS (
    UPDATE pillarbox.notices SET due = %(due)s
     WHERE id = ANY (ARRAY(
        SELECT id FROM pillarbox.notices
         WHERE senderdomain = %(domain)s::text AND senderlocalpart = %(localpart)s::text
           AND due >= coalesce(%(floor)s::timestamptz, '-infinity') AND due < %(due)s
         ORDER BY due, id LIMIT %(batch)s FOR UPDATE))
    RETURNING 1
)
SELECT count(*) AS notices FROM held

-- name: notice_hold_back
-- The same for notices of all senders.
WITH held AS (
    UPDATE pillarbox.notices SET due = %(due)s
     WHERE id = ANY (ARRAY(
        SELECT id FROM pillarbox.notices
         WHERE due >= coalesce(%(floor)s::timestamptz, '-infinity') AND due < %(due)s
         ORDER BY due, id LIMIT %(batch)s FOR UPDATE))
    RETURNING 1
)
SELECT count(*) AS notices FROM held

-- name: notice_next
-- The notices of one kind about one message that have waited for longer than `gather`, the longest due first; with them how
-- many notifications their sender, and all senders, got in this hour, and when the next one begins. From `floor` on: nothing was
-- left below it, and while an old snapshot is held, PostgreSQL would read there what is gone at every look. The query finds the other
-- notices of the message by the index on messages__id. If statistics say that the table is empty, PostgreSQL can choose another index
-- and read all notices. Three things prevent that: no join, IS TRUE on `due`, and the order by id + 0.
WITH first AS MATERIALIZED (
    SELECT messages__id, kind, due FROM pillarbox.notices
     WHERE due >= coalesce(%(floor)s::timestamptz, '-infinity')
       AND due <= coalesce(%(now)s::timestamptz, now()) - %(gather)s::interval ORDER BY due, id LIMIT 1
)
SELECT n.id, n.ts, n.kind, n.messages__id, n.senderlocalpart, n.senderdomain, n.recipientlocalpart, n.recipientdomain, n.metadata,
       n.remote, n.reply_code, n.reply_enhanced, n.reply_text, n.arrived, n.will_retry_until,
       coalesce((SELECT c.notices FROM pillarbox.notice_counts c
                  WHERE c.hour = h.hour AND c.sender = n.senderlocalpart || '@' || n.senderdomain), 0) AS sent,
       coalesce((SELECT c.notices FROM pillarbox.notice_counts c WHERE c.hour = h.hour AND c.sender = ''), 0) AS sent_to_all,
       h.hour + interval '1 hour' AS next_hour, coalesce(%(now)s::timestamptz, now()) AS at, (SELECT due FROM first) AS floor
  FROM pillarbox.notices n,
       (SELECT date_trunc('hour', coalesce(%(now)s::timestamptz, now()), 'UTC') AS hour) AS h
 WHERE n.messages__id = (SELECT messages__id FROM first) AND n.kind = (SELECT kind FROM first)
   AND (n.due <= coalesce(%(now)s::timestamptz, now())) IS TRUE
 ORDER BY n.id + 0 LIMIT %(batch)s
   FOR UPDATE OF n

-- name: notice_original
-- The message that notices are about: the beginning of its content, its size and how it came.
SELECT substring(content FROM 1 FOR %(limit)s::integer) AS content, size, smtputf8 FROM pillarbox.messages WHERE id = %(message)s

-- name: notice_postpone
-- Lets these notices, which PostgreSQL refused at `at`, wait until `due`; once it has for long enough, they are forgotten.
UPDATE pillarbox.notices SET due = %(due)s, refused = coalesce(refused, %(at)s) WHERE id = ANY (%(ids)s::bigint[])

-- name: notice_send
-- Queues one notification and forgets its notices.
SELECT pillarbox.notice_send(coalesce(%(now)s::timestamptz, now()), %(ids)s::bigint[], %(recipients)s::text[], %(content)s,
                             %(transport)s, %(smtputf8)s) AS message
