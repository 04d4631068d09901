-- Releases locked recipients to other addresses, and deletes the held ones in the same step.
SELECT id, partid FROM pillarbox.queue_redirect(%(ids)s::bigint[], %(localparts)s::text[], %(domains)s::text[])
