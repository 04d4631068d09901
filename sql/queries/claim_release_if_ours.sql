-- Gives claimed recipients back untried, as if the claim had not been: the next worker may take them at once.
UPDATE pillarbox.queue q
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = q.retry_count - 1
  FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[]) AS h(id, token)
 WHERE q.id = h.id AND q.token = h.token
