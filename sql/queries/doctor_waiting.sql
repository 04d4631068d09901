-- Which of these partition ids have mail to deliver, due or not; NULL is mail without one.
SELECT partid FROM unnest(%(partids)s::text[]) AS partid
 WHERE EXISTS (SELECT FROM pillarbox.queue q WHERE q.status = 'DELIVER' AND q.metadata->>'_partid' = partid)
    OR (partid IS NULL AND EXISTS (SELECT FROM pillarbox.queue q WHERE q.status = 'DELIVER' AND q.metadata->>'_partid' IS NULL))
