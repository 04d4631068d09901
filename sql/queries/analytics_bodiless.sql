-- Takes a second look at recipients that seemed to have no body, and lists those that have none.
SELECT q.id FROM pillarbox.queue q
 WHERE q.id = ANY(%(ids)s) AND NOT EXISTS (SELECT FROM pillarbox.messages m WHERE m.id = q.messages__id) ORDER BY q.id
