-- Waits for whoever is changing these rows at this moment: perhaps a backend that goes on with what we gave it, though our
-- connection to it is lost.
SELECT FROM pillarbox.queue q
 WHERE q.id = ANY (%(ids)s::bigint[])
 ORDER BY q.id
   FOR NO KEY UPDATE
