-- Gives claimed recipients back untried, as if the claim had not been: the next worker may take them at once. Returns those
-- that were ours, by id and token.
--
-- {among} says in which partitions they are looked for (queued/claiming/leaves.py).
UPDATE pillarbox.queue q
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = q.retry_count - 1
  FROM unnest(%(ids)s::bigint[], %(messages)s::uuid[], %(tokens)s::bigint[]) AS h(id, message, token)
 WHERE q.id = ANY(%(ids)s::bigint[]) AND {among} AND q.id = h.id AND q.messages__id = h.message AND q.token = h.token
RETURNING q.id, h.token
