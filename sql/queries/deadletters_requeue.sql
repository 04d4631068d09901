-- Sends dead letters once more: how many were queued, and how many have no body any more.
SELECT cardinality(requeued) AS requeued, gone FROM pillarbox.dead_letters_requeue(%(ids)s::bigint[])
