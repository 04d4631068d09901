-- Releases copies of locked recipients, to themselves or to another address, and leaves the held ones where they are.
SELECT id, partid FROM pillarbox.queue_release_copies(%(ids)s::bigint[], %(localpart)s::text, %(domain)s::text)
