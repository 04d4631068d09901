-- Takes a second look at recipients that attempts name, and lists those that are neither queued nor archived.
SELECT id FROM unnest(%(ids)s::bigint[]) AS named(id)
 WHERE NOT EXISTS (SELECT FROM pillarbox.queue q WHERE q.id = named.id)
   AND NOT EXISTS (SELECT FROM pillarbox.archive a WHERE a.id = named.id) ORDER BY id
