-- How many recipients fit a condition, how large they are together, the oldest of them, and the highest id: what comes
-- later is not meant.
SELECT count(*) AS recipients, count(DISTINCT q.messages__id) AS messages, coalesce(sum(q.size), 0)::bigint AS bytes, min(q.ts) AS oldest,
       coalesce(max(q.id), 0) AS last, count(*) FILTER (WHERE q.lease_until > %(now)s) AS sending
  FROM pillarbox.queue q
 WHERE {condition} AND q.status = ANY (%(statuses)s::pillarbox.queue_status[])
