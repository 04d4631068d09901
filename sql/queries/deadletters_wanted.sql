-- Ids of dead letters that were not requeued, the oldest first: those that match every filter that is not NULL.
SELECT id
  FROM pillarbox.dead_letters
 WHERE NOT requeued
   AND finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(ids)s::bigint[] IS NULL OR id = ANY(%(ids)s::bigint[]))
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domain)s::text IS NULL OR domain = lower(%(domain)s::text))
 ORDER BY finished, id
 LIMIT %(limit)s::bigint
