-- Recipients that fit a condition by destination and age, the fullest destinations first; bucket 0 is below the first
-- bound (minutes). The row without a destination is all of them together.
WITH counted AS (
    SELECT q.recipientdomain AS domain, width_bucket(extract(epoch FROM %(now)s::timestamptz - q.ts) / 60, %(bounds)s::numeric[]) AS bucket, count(*) AS n
      FROM pillarbox.queue q
     WHERE {condition}
     GROUP BY 1, 2
), fullest AS (
    SELECT domain, sum(n) AS total FROM counted GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s::bigint
), told AS (
    SELECT NULL::text AS domain, bucket, sum(n) AS n, (SELECT sum(n) FROM counted) AS total FROM counted GROUP BY bucket
    UNION ALL
    SELECT domain, bucket, n, total FROM counted JOIN fullest USING (domain)
)
SELECT domain, jsonb_object_agg(bucket, n) AS counts, min(total)::bigint AS total
  FROM told
 GROUP BY domain
 ORDER BY domain IS NULL DESC, total DESC, domain
