-- How many dead letters match every filter that is not NULL, by result.
SELECT result, count(*) AS letters
  FROM pillarbox.dead_letters
 WHERE finished >= coalesce(%(since)s::timestamptz, '-infinity')
   AND (%(results)s::text[] IS NULL OR result = ANY(%(results)s::text[]))
   AND (%(domain)s::text IS NULL OR domain = lower(%(domain)s::text))
 GROUP BY result
 ORDER BY result
