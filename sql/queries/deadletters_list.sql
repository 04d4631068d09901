-- Dead letters, the latest first: those that match every filter that is not NULL.
SELECT id, message, finished, result, sender, recipient, received, size, retry_count, last_error, worker, partition, transport,
       jobid, body, requeued
  FROM pillarbox.dead_letters
 WHERE finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[]))
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domain)s::text IS NULL OR domain = lower(%(domain)s::text))
 ORDER BY finished DESC, id DESC
 LIMIT %(limit)s::bigint
