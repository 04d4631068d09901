-- Gives claimed recipients back untried, as if the claim had not been: the next worker may take them at once.
UPDATE pillarbox.queue
   SET token = NULL, worker = NULL, lease_until = NULL, retry_count = retry_count - 1
 WHERE id = ANY(%(ids)s) AND token = ANY(%(tokens)s)
