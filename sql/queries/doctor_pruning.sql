-- The plan for what a claim reads, by which one sees the leaves it opens.
EXPLAIN (FORMAT JSON)
SELECT id FROM pillarbox.queue
 WHERE status = 'DELIVER' AND priority = 0 AND last_error IS NULL AND ({where}) AND next_retry <= now()
 ORDER BY next_retry, id LIMIT 1
