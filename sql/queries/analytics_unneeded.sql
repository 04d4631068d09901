-- Takes a second look at bodies that seemed to belong to nobody, and lists those that do.
SELECT m.id::text FROM pillarbox.messages m
 WHERE m.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM pillarbox.queue q WHERE q.messages__id = m.id)
   AND NOT EXISTS (SELECT FROM pillarbox.released r WHERE r.messages__id = m.id) ORDER BY m.id
