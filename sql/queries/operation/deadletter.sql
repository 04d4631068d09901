-- Recipients that finished without success: listed, announced, queued again.

-- name: deadletters_begin
-- The time from which dead letters are new, by the clock that dates them.
SELECT now() AS now

-- name: deadletters_announce
-- Announces dead letters, in a transaction of its own whose COMMIT waits for nothing; whether each was sent. From half of the queue
-- of notifications on none is: `deadletters watch` reads the archive, and nothing of ours shall fill it up.
SELECT CASE WHEN pg_notification_queue_usage() < 0.5 THEN pg_notify('dead_message', id::text) IS NOT NULL ELSE false END AS sent,
       set_config('synchronous_commit', 'off', true)
  FROM unnest(%(ids)s::bigint[]) AS id

-- name: deadletters_attempts
-- Every try at one recipient, the first first.
SELECT ts, retry_count, worker, remote, outcome, scope, uncertain, reply_code, reply_text, tls, source,
       extract(epoch FROM duration)::float AS seconds
  FROM pillarbox.attempts
 WHERE messages__id = %(message)s AND queue__id = %(id)s
 ORDER BY ts, id

-- name: deadletters_count
-- How many dead letters match every filter that is not NULL, by result.
SELECT result, count(*) AS letters
  FROM pillarbox.dead_letters
 WHERE finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domains)s::text[] IS NULL OR domain = ANY (%(domains)s::text[]))
 GROUP BY result
 ORDER BY result

-- name: deadletters_list
-- Dead letters, the latest first: those that match every filter that is not NULL, and finished before one, to go on in a list.
SELECT id, message, finished, result, sender, recipient, received, size, retry_count, last_error, worker, partition, transport,
       jobid, body, requeued
  FROM pillarbox.dead_letters
 WHERE finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[]))
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domains)s::text[] IS NULL OR domain = ANY (%(domains)s::text[]))
   AND (%(before)s::timestamptz IS NULL OR (finished, id) < (%(before)s::timestamptz, %(before_id)s::bigint))
 ORDER BY finished DESC, id DESC
 LIMIT %(limit)s::bigint

-- name: deadletters_listen
-- Hears of every dead letter at the commit of its archive row; the payload is its id.
LISTEN dead_message

-- name: deadletters_of
-- Ids of the dead letters of these messages.
SELECT id FROM pillarbox.dead_letters WHERE message = ANY(%(messages)s::uuid[]) ORDER BY id

-- name: deadletters_requeue
-- Sends dead letters once more: how many were queued, and how many have no body any more.
SELECT cardinality(requeued) AS requeued, gone FROM pillarbox.dead_letters_requeue(%(ids)s::bigint[])

-- name: deadletters_unknown
-- Which of these numbers are of no dead letter in the history.
SELECT asked.id FROM unnest(%(ids)s::bigint[]) AS asked(id)
 WHERE NOT EXISTS (SELECT FROM pillarbox.dead_letters d WHERE d.id = asked.id)
 ORDER BY asked.id

-- name: deadletters_wanted
-- Ids of dead letters that were not requeued, the oldest first: those that match every filter that is not NULL.
SELECT id
  FROM pillarbox.dead_letters
 WHERE NOT requeued
   AND finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[]))
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domains)s::text[] IS NULL OR domain = ANY (%(domains)s::text[]))
 ORDER BY finished, id
 LIMIT %(limit)s::bigint
