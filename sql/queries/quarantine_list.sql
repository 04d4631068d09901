-- What is held in each quarantine: how many, how large, the oldest and the latest.
SELECT q.metadata->>'_quarantineid' AS id, count(*) AS recipients, count(DISTINCT q.messages__id) AS messages,
       coalesce(sum(q.size), 0)::bigint AS bytes, min(q.ts) AS oldest, max(q.ts) AS latest
  FROM pillarbox.queue q
 WHERE q.status = 'HOLD'
 GROUP BY 1
 ORDER BY 2 DESC, 1
