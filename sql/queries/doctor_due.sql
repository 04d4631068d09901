-- Due mail by partition id, among the `batch` earliest of each class of a claim: how many wait and for how long, and
-- how many a dead worker's claim has left behind for longer than `grace`.
SELECT partid, count(*) FILTER (WHERE free) AS waiting, now() - min(next_retry) FILTER (WHERE free) AS oldest,
       count(*) FILTER (WHERE lost) AS lost, now() - min(lease_until) FILTER (WHERE lost) AS since,
       (array_agg(DISTINCT worker) FILTER (WHERE lost))[1:3] AS workers
  FROM (SELECT metadata->>'_partid' AS partid, next_retry, lease_until, worker,
               lease_until IS NULL OR lease_until <= now() AS free, token IS NOT NULL AND lease_until < now() - %(grace)s AS lost
          FROM ((SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority > 0 AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NOT NULL AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)
                UNION ALL
                (SELECT * FROM pillarbox.queue WHERE status = 'DELIVER' AND priority < 0 AND next_retry <= now()
                  ORDER BY next_retry, id LIMIT %(batch)s)) AS due) AS seen
 GROUP BY partid
 ORDER BY partid
